"""The live display of a tuning run: best time, rate, failures, and time left.

It is written to standard error. On a terminal it is one updating line; elsewhere it is a
line for each improvement, at most one every few seconds. Quiet prints nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tuner import units
from tuner.measure.outcome import Failed
from tuner.tuning import BestImproved, RoundPlanned, Stopped, TrialRecorded
from tuner.workers.jobs.progress import Phase, Progress, TaskFinished, TaskStarted, WorkerNotice

LINE_EVERY_S = 2.0  # between two lines where no terminal can be updated


@dataclass(slots=True, kw_only=True)
class Run:
    """The state of the workload being tuned."""

    spec: str
    flops: int  # of one call
    trials: int  # budget
    seconds: float | None  # budget
    started_s: float  # by the display's clock
    resumed: int = 0  # trials that were recorded before this run
    done: int = 0  # trials in all, with those
    best_s: float | None = None
    default_s: float | None = None
    failed: Counter[str] = field(default_factory=Counter)
    phase: str = ""  # what happens besides trials: starting workers, promotion

    def take(self, number: int, median_s: float | None, failed: str | None, *, past: bool) -> None:
        """Counts a trial. `failed` is the kind of a failure."""
        self.done += 1
        self.resumed += past
        if failed is not None:
            self.failed[failed] += 1
        elif number == 0:
            self.default_s = median_s

    def text(self, now_s: float) -> str:
        """The state in one line, at `now_s` of the display's clock."""
        elapsed = now_s - self.started_s
        parts = [f"{self.spec}  {self.done}/{self.trials}"]
        if self.best_s is not None:
            speed = f" ({units.rate(self.flops / self.best_s / 1e9)})" if self.flops else ""
            parts.append(f"best {units.seconds(self.best_s)}{speed}")
            if self.default_s is not None:
                parts.append(f"{units.ratio(self.default_s / self.best_s)} the default")
        fresh = self.done - self.resumed
        if fresh > 0 and elapsed > 0:
            rate = fresh / elapsed
            left = (self.trials - self.done) / rate
            if self.seconds is not None:
                left = min(left, max(0.0, self.seconds - elapsed))
            parts += [
                f"{rate:.1f} trials/s",
                f"{units.duration(left)} left" if left > 0 else units.duration(elapsed),
            ]
        if self.failed:
            parts.append(
                f"{self.failed.total()} failed "
                f"({', '.join(f'{kind} {n}' for kind, n in self.failed.most_common(3))})"
            )
        if self.phase:
            parts.append(self.phase)
        return "  ".join(parts)


class TuningDisplay:
    """The display, a context manager. Calls are cheap and safe when nothing is shown."""

    def __init__(
        self, console: Console, *, quiet: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console, self._quiet, self._clock = console, quiet, clock
        self._run: Run | None = None
        self._last_line_s = float("-inf")
        self._live = Live(
            console=console, transient=True, refresh_per_second=8, get_renderable=self._renderable
        )

    def __enter__(self) -> TuningDisplay:
        if self._updates:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._updates:
            self._live.stop()

    def observe(self, progress: Progress) -> None:
        """Shows what an orchestrator reports; an `Observer` of tuner.workers.jobs.progress."""
        match progress:
            case TaskStarted(workload=workload):
                self.begin(
                    spec=workload.spec,
                    flops=workload.expression.flops,
                    space_size=progress.space_size,
                    trials=progress.trials,
                    seconds=progress.seconds,
                    recorded=progress.recorded,
                )
            case Phase(name=name):
                self._phase("" if name == "searching" else name)
            case WorkerNotice(message=message):
                self.note(message)
            case TaskFinished(error=error):
                self.end(error)
            case TrialRecorded(trial=trial):
                outcome = trial.outcome
                if isinstance(outcome, Failed):
                    self.trial(trial.number, None, failed=outcome.kind.value)
                else:
                    self.trial(trial.number, outcome.median_s)
            case BestImproved(median_s=median_s):
                self.best(median_s)
            case RoundPlanned() | Stopped():
                pass

    def begin(
        self,
        *,
        spec: str,
        flops: int,
        space_size: int | None,
        trials: int,
        seconds: float | None,
        recorded: int = 0,
    ) -> None:
        """Starts to show a workload. `recorded` counts its trials of an earlier run."""
        self._run = Run(
            spec=spec,
            flops=flops,
            trials=trials,
            seconds=seconds,
            started_s=self._clock(),
            resumed=recorded,
            done=recorded,
        )
        after = f", continued after {recorded} recorded trials" if recorded else ""
        size = "" if space_size is None else f"{units.count(space_size)} configs, "
        self.note(f"{spec}: {size}{trials} trials{after}")

    def trial(
        self, number: int, median_s: float | None, *, failed: str | None = None, past: bool = False
    ) -> None:
        """Shows a trial. `failed` is the kind of a failure; a `past` trial has no rate."""
        if self._run is not None:
            self._run.take(number, median_s, failed, past=past)

    def best(self, median_s: float) -> None:
        """Shows a new best time."""
        if self._run is not None:
            self._run.best_s = median_s
            self._line(self._run)

    def _phase(self, text: str) -> None:
        if self._run is not None:
            self._run.phase = text
            if text:
                self._line(self._run, at_once=True)
        elif text:
            self.note(text)

    def end(self, error: str | None) -> None:
        """Ends the workload's display; its last state stays on the screen."""
        if self._run is not None:
            self._run.phase = "" if error is None else error
            self.note(self._run.text(self._clock()))
            self._run = None

    def note(self, text: str) -> None:
        """Writes a line above the display."""
        if not self._quiet:
            self._console.print(Text(text), soft_wrap=True)

    @property
    def _updates(self) -> bool:
        return self._console.is_terminal and not self._quiet

    def _line(self, run: Run, *, at_once: bool = False) -> None:
        now = self._clock()
        if not self._updates and (at_once or now - self._last_line_s >= LINE_EVERY_S):
            self._last_line_s = now
            self.note(run.text(now))

    def _renderable(self) -> Text:
        return Text(
            "" if self._run is None else self._run.text(self._clock()),
            overflow="ellipsis",
            no_wrap=True,
        )

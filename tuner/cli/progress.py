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
from tuner.workers.jobs.progress import (
    ModelGain,
    ModelLate,
    ModelRound,
    Phase,
    Progress,
    TaskFinished,
    TaskStarted,
    WorkerNotice,
)

LINE_EVERY_S = 2.0  # between two lines where no terminal can be updated
WORTH = 0.01  # a gain of a model that is worth more time


@dataclass(slots=True, kw_only=True)
class ModelProgress:
    """The model whose kernels the workloads are."""

    started_s: float  # by the display's clock
    ends_s: float | None  # when the command is to be done; None without a bound
    late_s: float = 0.0  # that it will take beyond that
    round: ModelRound | None = None
    before: int | None = None  # trials of all kernels of an earlier run

    def text(self, now_s: float, fresh: int) -> str:
        """How far the model is, `fresh` trials after the begin of its round."""
        left = [] if self.ends_s is None else [max(0.0, self.ends_s + self.late_s - now_s)]
        text = "model"
        if self.round is not None:
            text += f" {self.round.searched}/{self.round.kernels} kernels"
            done = self.round.trials + fresh
            new = done - (self.before or 0)
            if new > 0 and now_s > self.started_s and done < self.round.budget:
                left.append((self.round.budget - done) * (now_s - self.started_s) / new)
        return f"{text}, {units.duration(min(left))} left" if left else text


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

    def text(self, now_s: float, whole: ModelProgress | None = None) -> str:
        """The state in one line, at `now_s` of the display's clock.

        What is left is that of the model, if the workload is a kernel of one.
        """
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
            parts.append(f"{rate:.1f} trials/s")
            if whole is None:
                parts.append(
                    f"{units.duration(left)} left" if left > 0 else units.duration(elapsed)
                )
        if self.failed:
            parts.append(
                f"{self.failed.total()} failed "
                f"({', '.join(f'{kind} {n}' for kind, n in self.failed.most_common(3))})"
            )
        if self.phase:
            parts.append(self.phase)
        if whole is not None:
            parts.append(whole.text(now_s, self.done - self.resumed))
        return "  ".join(parts)


class TuningDisplay:
    """The display, a context manager. Calls are cheap and safe when nothing is shown."""

    def __init__(
        self, console: Console, *, quiet: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console, self._quiet, self._clock = console, quiet, clock
        self._run: Run | None = None
        # By position in the job: a kernel of a model is stored while the next one has begun.
        self._runs: dict[int, Run | None] = {}
        self._whole: ModelProgress | None = None
        self.gain: ModelGain | None = None  # what the last rounds of a model have gained
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
                self._runs[progress.position] = self._run
            case Phase(name=name):
                self._phase("" if name == "searching" else name)
            case WorkerNotice(message=message):
                self.note(message)
            case TaskFinished(position=position, error=error):
                self.end(error, self._runs.pop(position, None))
            case TrialRecorded(trial=trial):
                outcome = trial.outcome
                if isinstance(outcome, Failed):
                    self.trial(trial.number, None, failed=outcome.kind.value)
                else:
                    self.trial(trial.number, outcome.median_s)
            case BestImproved(median_s=median_s):
                self.best(median_s)
            case ModelRound():
                if self._whole is not None:
                    self._whole.round = progress
                    if self._whole.before is None:
                        self._whole.before = progress.trials
            case ModelGain():
                self.gain = progress
            case ModelLate():
                if self._whole is not None:
                    self._whole.late_s = progress.seconds
                self.note(progress.text)
            case RoundPlanned() | Stopped():
                pass

    def whole(self, seconds: float | None) -> None:
        """Shows the workloads to come as kernels of a model, for which so much time is left."""
        now_s = self._clock()
        self._whole = ModelProgress(
            started_s=now_s, ends_s=None if seconds is None else now_s + seconds
        )

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

    def end(self, error: str | None, run: Run | None = None) -> None:
        """Ends the display of a workload, the present one's without `run`.

        Its last state stays on the screen.
        """
        run = run or self._run
        if run is not None:
            run.phase = "" if error is None else error
            self.note(run.text(self._clock(), self._whole))
            if run is self._run:
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
            self.note(run.text(now, self._whole))

    def _renderable(self) -> Text:
        return Text(
            "" if self._run is None else self._run.text(self._clock(), self._whole),
            overflow="ellipsis",
            no_wrap=True,
        )


def gain_text(gain: ModelGain) -> str:
    """Whether more time pays, by what the last rounds have gained."""
    saved = 1 - gain.after_s / gain.before_s if gain.before_s else 0.0
    if saved < WORTH:
        return (
            f"the last {units.duration(gain.seconds)} of rounds gained less than "
            f"{units.percent(WORTH)}: more time hardly pays"
        )
    return (
        f"the last {units.duration(gain.seconds)} of rounds made the kernels "
        f"{units.percent(saved)} faster: as much time again should still pay"
    )

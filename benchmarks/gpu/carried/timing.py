"""Times of calls, and what PyTorch's compiler makes of them."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

ROUNDS = 7
SCREEN_S, RACE_S = 0.01, 0.05  # of device time in one sample
MAX_CALLS = 400  # in one graph


def compiled(torch: Any, rivals: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """The same calls by torch.compile with Triton, where that works here."""
    fast_calls = {}
    for call in rivals.values():
        fast = optimised(torch, call, mode="max-autotune-no-cudagraphs")
        if fast is not None:
            fast_calls["torch.compile max-autotune"] = fast
    return fast_calls


def optimised(
    torch: Any, call: Callable[..., Any], *given: Any, mode: str, calls: int = 1
) -> Callable[[], Any] | None:
    """What torch.compile makes of a call for exactly these shapes, called so often.

    None where it makes nothing.
    """
    try:
        # What it saw of other shapes would make this one's dynamic, and several times slower.
        torch._dynamo.reset()
        fast = torch.compile(call, mode=mode, dynamic=False)
        with (
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
        ):
            for _ in range(calls):
                fast(*given)
    # of another project's compiler
    except (RuntimeError, OSError, ImportError, ValueError, AttributeError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0][:120]
        print(f"  torch.compile does not take part: {said}", file=sys.stderr)
        return None
    return partial(fast, *given)


class Timer:
    """Calls captured into a graph. A sample is the seconds of one call."""

    def __init__(self, torch: Any, call: Callable[[], Any], budget_s: float) -> None:
        self._torch = torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        self.calls = 1
        single = self._graph(call, 1)
        once_s = min(self._time(single) for _ in range(3))
        self.calls = max(1, min(MAX_CALLS, round(budget_s / max(once_s, 1e-7))))
        self._captured = self._graph(call, self.calls)
        self.sample()

    def _graph(self, call: Callable[[], Any], count: int) -> Any:
        graph = self._torch.cuda.CUDAGraph()
        with self._torch.cuda.graph(graph):
            for _ in range(count):
                call()
        return graph

    def _time(self, graph: Any) -> float:
        start, stop = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1e3

    def sample(self) -> float:
        return self._time(self._captured) / self.calls


class LoopTimer:
    """Calls one after another, as a program makes them. A sample is the seconds of one call."""

    def __init__(self, torch: Any, call: Callable[[], Any], budget_s: float) -> None:
        self._torch, self._call, self.calls = torch, call, 1
        for _ in range(3):
            call()
        once_s = min(self.sample() for _ in range(3))
        self.calls = max(1, min(MAX_CALLS, round(budget_s / max(once_s, 1e-7))))

    def sample(self) -> float:
        start, stop = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(self.calls):
            self._call()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1e3 / self.calls


def raced(
    torch: Any,
    contenders: dict[str, Callable[[], Any]],
    way: type[Timer] | type[LoopTimer] = Timer,
) -> dict[str, float]:
    """Median seconds of each, in turn over all rounds."""
    timers = {name: way(torch, call, RACE_S) for name, call in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(ROUNDS):
        for name, timer in timers.items():
            samples[name].append(timer.sample())
    return {name: statistics.median(seconds) for name, seconds in samples.items()}


def copy_bandwidth(torch: Any, nbytes: int) -> float:
    """Bytes a second that a copy of this size moves, read and written counted."""
    source = torch.empty(nbytes // 8, device="cuda", dtype=torch.float32).uniform_()
    target = torch.empty_like(source)
    timer = Timer(torch, lambda: target.copy_(source), RACE_S)
    moved = 2.0 * 4.0 * int(source.numel())
    return moved / statistics.median(timer.sample() for _ in range(ROUNDS))

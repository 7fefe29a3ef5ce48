"""PyTorch's calls, sampled: its own profiler is on for short windows.

The profiler is switched on and off by the thread that it watches, between two calls: a
switch from outside, while operators run, is a race. Threads are reached by hooks of modules.
Where no module is called for a while, the main thread is asked by a pending call of CPython.

A window begins at a random moment. What is seen in it counts for the processor time that
threads spend from this window to the next, over the thread's own in the window: waiting, be
it for work or for a processor, then has no weight. A pause is as long as it takes for
windows, and what is done with them, to stay within their share of the time.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

from .output import Output

LOG_LEVEL = "KINETO_LOG_LEVEL"  # of what PyTorch's profiler writes to standard error
FIRST_S, LEAST_S, MOST_S = 0.002, 0.001, 0.5  # of a window
AIM = 300  # operators of a window in a busy thread, those within others too
LEAST_PAUSE_S = 0.1
MODULES_FIRST = 20  # windows for modules alone, before the main thread is asked
ASKED_S = 0.02  # in which a window is opened, or given up; between two requests
OPERATOR_S = 2e-6  # what the profiler adds to an operator in a window
PREFIX = "aten::"
NOBODY = -1  # in the place of a thread
DTYPES = {
    "float": "float32", "double": "float64", "long int": "int64", "int": "int32",
    "short int": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
    "c10::BFloat16": "bfloat16", "c10::Half": "float16", "long": "int64", "short": "int16",
}  # fmt: skip


class Window:
    """One window, which a thread of the program opens and closes where it passes."""

    def __init__(self, profiler: Profiler, length_s: float) -> None:
        self._profiler, self._length_s = profiler, length_s
        self._owner: int | None = None
        self._claim = threading.Lock()
        self._is_closing = False
        self._until_s = self._begun_s = 0.0
        self.opened, self.closed = threading.Event(), threading.Event()
        self.threads: set[int] = set()  # that passed
        self.events: Any = ()
        self.busy_s = 0.0  # that the thread computed
        self.cost_s = 0.0

    @property
    def is_open(self) -> bool:
        return self.opened.is_set() and not self.closed.is_set()

    def passed(self) -> None:
        """A thread of the program is between two calls."""
        thread = threading.get_ident()
        self.threads.add(thread)
        if self._owner is None and self.claim(thread):
            self._open()
        elif self._owner == thread and time.perf_counter() >= self._until_s:
            self.close()

    def claim(self, thread: int) -> bool:
        """Whether the window is this thread's now; nobody opens one that NOBODY has claimed."""
        with self._claim:
            if self._owner is None:
                self._owner = thread
                return True
            return False

    def close(self) -> None:
        """Called by the thread that opened it."""
        if self._is_closing:
            return
        self._is_closing = True
        ended_s = time.thread_time()
        self.events = self._profiler.disable()
        inside_s = ended_s - self._begun_s
        self.busy_s = max(inside_s - len(self.events) * OPERATOR_S, inside_s / 2)
        self.cost_s += time.thread_time() - ended_s
        self.closed.set()

    def _open(self) -> None:
        begun_s = time.thread_time()
        self._profiler.enable()
        self._begun_s = time.thread_time()
        self.cost_s += self._begun_s - begun_s
        self._until_s = time.perf_counter() + self._length_s
        self.opened.set()


class Clocks:
    """The processor time of the threads that call operators."""

    def __init__(self) -> None:
        self._read: dict[int, float] = {}  # seconds when last read, by the thread's number

    def spent_s(self, threads: set[int]) -> float:
        """Seconds of these threads since they were asked for last."""
        # Only of threads that live: those listed cannot end while this one has the GIL.
        living = {
            thread.ident
            for thread in threading.enumerate()
            if not isinstance(thread, threading._DummyThread)
        }
        total_s = 0.0
        for thread in threads & living:
            now_s = time.clock_gettime(time.pthread_getcpuclockid(thread))
            total_s += now_s - self._read.get(thread, now_s)
            self._read[thread] = now_s
        return total_s


class Profiler:
    """PyTorch's profiler for the calling thread, with shapes."""

    def __init__(self, torch: Any) -> None:
        api = torch._C._profiler
        self._autograd = torch._C._autograd
        self._activities = {api.ProfilerActivity.CPU}
        self._config = torch.autograd.profiler.ProfilerConfig(
            api.ProfilerState.KINETO, True, False, False, False, False, api._ExperimentalConfig()
        )

    def enable(self) -> None:
        self._autograd._prepare_profiler(self._config, self._activities)
        self._autograd._enable_profiler(self._config, self._activities)

    def disable(self) -> Any:
        return self._autograd._disable_profiler().events()


class Sampler:
    """The thread that asks for windows, and counts what they saw."""

    def __init__(self, torch: Any, output: Output, share: float) -> None:
        self._torch, self._output, self._share = torch, output, share
        self._profiler = Profiler(torch)
        self._slots: dict[Any, int] = {}
        self._window_s = FIRST_S  # of the next window
        self._window: Window | None = None
        self._seen: list[tuple[int, float]] = []  # slots and seconds of the last window
        self._busy_s = self._cost_s = 0.0  # of the last window
        self._clocks = Clocks()
        self._threads: set[int] = set()  # that call operators
        self._unopened = 0  # windows in a row
        self._by_modules = False  # whether modules have been called
        self._ended = threading.Event()
        self._pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._passed)
        self._thread = threading.Thread(target=self._run, name="tuner-trace", daemon=True)

    def start(self) -> None:
        # The profiler must be made ready by the thread that has imported PyTorch.
        self._profiler.enable()
        self._profiler.disable()
        self._yield_to_the_program()
        atexit.register(self._close)
        self._thread.start()

    def forked(self) -> None:
        """In a child, which has no such thread."""
        self._ended.set()
        self._seen = []
        self._output.note("PyTorch's calls in a forked process are not recorded")

    def _close(self) -> None:
        """Ends the recording; the thread that calls this may be in a window of its own."""
        self._ended.set()
        window = self._window
        if window is not None and window.is_open:
            window.close()
        self._settle()

    def _yield_to_the_program(self) -> None:
        """There can be only one profiler; the program's comes first."""
        profiler = self._torch.autograd.profiler
        original = profiler._prepare_profiler

        def prepare(*arguments: Any, **named: Any) -> Any:
            if not self._ended.is_set():
                self._close()
                self._output.note(
                    "PyTorch's calls are recorded only until the program began to profile itself"
                )
            return original(*arguments, **named)

        profiler._prepare_profiler = prepare

    def _passed(self, *_: Any) -> int:
        """Called by a thread of the program, between two calls."""
        window = self._window
        if window is not None and not window.closed.is_set():
            try:
                window.passed()
            except Exception as error:
                self._ended.set()
                self._output.note(f"PyTorch's calls are no longer recorded: {error!r}")
        return 0

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                cost_s = self._sample()
                pause_s = cost_s / self._share * random.uniform(0.5, 1.5)
                self._ended.wait(max(pause_s, LEAST_PAUSE_S))
        except Exception as error:
            self._output.note(f"PyTorch's calls are no longer recorded: {error!r}")

    def _sample(self) -> float:
        """Asks for a window and waits for its end; returns its cost in seconds."""
        begun_s = time.thread_time()
        window = self._window = Window(self._profiler, self._window_s)
        asks = not self._by_modules and self._unopened >= MODULES_FIRST
        hooks = [] if asks else self._hooks()
        while not (window.closed.wait(ASKED_S) or self._ended.is_set()):
            if asks:
                ctypes.pythonapi.Py_AddPendingCall(self._pending, None)
            elif window.claim(NOBODY):
                break
        self._window = None
        for hook in hooks:
            hook.remove()
        if not window.closed.is_set():
            self._unopened += 1
            return time.thread_time() - begun_s
        self._by_modules |= not asks
        self._count(window)
        own_s = time.thread_time() - begun_s
        return own_s + window.cost_s + len(window.events) * OPERATOR_S

    def _count(self, window: Window) -> None:
        """Counts what the window before saw, and keeps what this one did."""
        self._settle()
        busy_s = 0.0
        for event in _outermost(window.events):
            slot, call_s = self._slot(event), event.duration_ns() / 1e9
            busy_s += call_s
            if slot:
                self._seen.append((slot, call_s))
        self._busy_s, self._cost_s = window.busy_s, window.cost_s
        self._threads |= window.threads
        self._clocks.spent_s(self._threads)  # from here on
        self._adapt(len(window.events), busy_s)

    def _hooks(self) -> list[Any]:
        module = self._torch.nn.modules.module
        return [
            module.register_module_forward_pre_hook(self._hooked),
            module.register_module_forward_hook(self._hooked),
        ]

    def _hooked(self, *_: Any) -> None:
        self._passed()

    def _adapt(self, operators: int, busy_s: float) -> None:
        """Sets the next window's length by how long operators take, not by how many came: an
        idle program may be busy in the next moment."""
        if operators:
            length_s = min(AIM * busy_s / operators, 2 * self._window_s)
            self._window_s = min(max(length_s, LEAST_S), MOST_S)

    def _settle(self) -> None:
        """Counts what the last window saw, for the time until now."""
        seen, self._seen = self._seen, []
        period_s = self._clocks.spent_s(self._threads) - self._cost_s
        self._cost_s = 0.0
        weight = max(period_s / self._busy_s, 1.0) if self._busy_s else 1.0
        for slot, call_s in seen:
            self._output.add(slot, weight, weight * call_s * 1e9)

    def _slot(self, event: Any) -> int:
        key = (
            event.name(),
            repr(event.structured_input_shapes()),
            repr(event.structured_input_strides()),
            repr(event.concrete_inputs()),
            repr(event.dtypes()),
        )
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = self._output.describe(_described(event))
        return slot


def record(torch: Any, output: Output, share: float) -> Any:
    """Begins to record; returns the sampler, None where this PyTorch has no such profiler."""
    names = ("structured_input_shapes", "structured_input_strides", "concrete_inputs")
    if not all(hasattr(torch._C._autograd._KinetoEvent, name) for name in names):
        output.note(
            f"PyTorch's calls are not recorded: the profiler of {torch.__version__} does not say "
            f"how arguments lie in memory"
        )
        return None
    sampler = Sampler(torch, output, share)
    sampler.start()
    return sampler


def quiet() -> None:
    """Keeps the profiler's log off standard error. Called before PyTorch is loaded."""
    os.environ.setdefault(LOG_LEVEL, "99")


def _outermost(events: Any) -> Iterator[Any]:
    """The operators that are not within others."""
    by_thread: dict[int, list[tuple[int, int, Any]]] = {}
    for event in events:
        if event.name().startswith(PREFIX):
            times = (event.start_ns(), -event.duration_ns(), event)
            by_thread.setdefault(event.start_thread_id(), []).append(times)
    for listed in by_thread.values():
        listed.sort(key=lambda entry: entry[:2])
        outer_end_ns = 0
        for start_ns, negative_ns, event in listed:
            if outer_end_ns <= start_ns:
                outer_end_ns = start_ns - negative_ns
                yield event


def _described(event: Any) -> dict[str, Any]:
    listed = []
    for shape, strides, dtype, value in zip(
        event.structured_input_shapes(),
        event.structured_input_strides(),
        event.dtypes(),
        event.concrete_inputs(),
        strict=True,
    ):
        if dtype == "TensorList":
            tensors = zip(shape, strides, strict=True)
            entries = [{"shape": s, "strides": t, "dtype": None} for s, t in tensors]
            listed.append({"list": entries})
        elif dtype in ("", "Scalar", "ScalarList"):
            listed.append({"value": value})
        else:
            listed.append({"shape": shape, "strides": strides, "dtype": DTYPES.get(dtype, dtype)})
    return {"library": "torch", "operator": event.name(), "arguments": listed}

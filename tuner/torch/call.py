"""A region as a function of tensors: PyTorch's until its library has shown that it computes
the same, and no slower."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import torch

from tuner.models.from_torch.stable_order import StableOrder
from tuner.models.library.region_cache import RaceResult
from tuner.models.reference.accuracy import TOLERANCE, relative_error
from tuner.runtime.loader import LibraryError
from tuner.torch.forks import Inherited, ProcessLock
from tuner.torch.native import InputRefused
from tuner.torch.notices import Notices
from tuner.torch.rebuilding import Function, replacing

# A race ends after so many seconds, but not before so many rounds, unless these take very long.
_RACE_S, _ROUNDS, _LONGEST_S = 0.3, 5, 3.0
Clock = Callable[[], float]  # seconds


class Supply(Protocol):
    """Where a region's library comes from."""

    def begin(self, call: RegionCall) -> None:
        """Offers the library to the call, at once or in a while."""

    def discard(self) -> None:
        """Forgets a library that computes something else."""

    def load(self, path: Path, failed: Callable[[str], Function]) -> Function:
        """The library's function. Raises LibraryError and OSError."""

    def note(self, race: RaceResult) -> None:
        """Keeps how fast the library is beside PyTorch. Raises nothing."""

    def finish(self) -> None:
        """Waits until what was called has been computed."""

    @property
    def tolerance(self) -> float:
        """The error that outputs may have, relative to their greatest value."""


class RegionCall(Inherited):
    """Calls a region. It has a name, as functions of traced graphs must.

    Several threads may call. What computes the region changes between calls.
    """

    def __init__(
        self,
        name: str,
        eager: Function,
        supply: Supply,
        notices: Notices,
        clock: Clock = time.perf_counter,
        *,
        replaced: Sequence[tuple[int, int]] = (),
        rival: Function | None = None,
    ) -> None:
        """`replaced` are the outputs that the library may write over inputs, the numbers of
        both; `eager` writes nothing. `rival` is what PyTorch runs in the place of the library
        where that is not `eager`; it writes the inputs that are replaced."""
        super().__init__()
        self.__name__ = name
        self._replaced = replaced
        self._rival = rival or replacing(eager, replaced)
        self._eager, self._supply, self._notices, self._clock = eager, supply, notices, clock
        self._lock = ProcessLock()
        self._broken = False  # a call of the library failed
        self._waits = False  # for a library, or for its race
        self._function: Function = self._first

    def __call__(self, *tensors: Any) -> Any:
        """The region's outputs, a tuple. What PyTorch raises for a call, it raises."""
        try:
            return self._function(*tensors)
        except InputRefused:
            pass
        return self._eager(*tensors)

    @property
    def is_pytorch(self) -> bool:
        """Whether PyTorch computes the next call: meanwhile, or for good."""
        return self._function is self._eager

    def offer(self, path: Path, last_race: RaceResult | None = None) -> None:
        """Has the library at a path tried at the next call; `last_race` is that of
        another process. One that was won is not run again."""
        self._function, self._waits = partial(self._try, path, last_race), False

    def give_up(self, kind: str, message: str) -> None:
        """Leaves the region to PyTorch, with a warning at the next call."""
        self._function, self._waits = partial(self._warn, kind, message), False

    def after_fork(self) -> None:
        """Asks the supply anew: who was to make the library works for the parent."""
        if self._waits:
            self._function, self._waits = self._first, False

    def _first(self, *tensors: Any) -> Any:
        with self._lock:
            if self._function == self._first:
                self._function, self._waits = self._eager, True
                self._supply.begin(self)
        return self._function(*tensors)

    def _warn(self, kind: str, message: str, *tensors: Any) -> Any:
        self._function = self._eager
        self._notices.warn(kind, f"region {self.__name__}: {message}")
        return self._eager(*tensors)

    def _try(self, path: Path, last_race: RaceResult | None, *tensors: Any) -> Any:
        """Computes the region by both. The library stays if it gives the same, no slower."""
        right = self._eager(*tensors)
        with self._lock:
            if getattr(self._function, "func", None) != self._try:  # another thread was first
                return right
            self._function, self._waits = self._eager, True
            try:
                function = self._judged(path, last_race, tensors, right)
            except (LibraryError, OSError) as trouble:
                self._supply.discard()
                self._notices.warn("library", f"region {self.__name__}: {trouble}")
            else:
                self._function = function
            finally:
                self._waits = False
        return right

    def _judged(
        self, path: Path, last_race: RaceResult | None, tensors: Sequence[Any], right: Any
    ) -> Function:
        """What computes the region from now on. The library is tried on copies of what it may
        write. Raises LibraryError and OSError where it fails."""
        function, own = self._supply.load(path, self._failed), self._apart(tensors)
        got = function(*own)
        far = self._far(got, right)
        if far:  # but for equal elements, whose order PyTorch leaves open
            with StableOrder():
                far = self._far(got, self._eager(*tensors))
        if far and not self._are_rounding(tensors, [*far], got):
            error = max(far.values())
            self._supply.discard()
            self._notices.warn(
                "wrong",
                f"region {self.__name__}: its library is off by {error:.3g} of the greatest "
                f"value, {self._supply.tolerance:.2g} is allowed",
            )
            return self._eager
        if last_race is None or not last_race.is_faster:
            library, pytorch = (
                partial(self._finished, each, *own)
                for each in (replacing(function, self._replaced), self._rival)
            )
            with torch.no_grad():
                last_race = raced(library, pytorch, self._clock)
            if not self._broken:
                self._supply.note(last_race)
        return function if last_race.is_faster and not self._broken else self._eager

    def _far(self, got: Any, right: Any) -> dict[int, float]:
        """The errors beyond the tolerance, by the numbers of the outputs."""
        errors = enumerate(_error(a, b) for a, b in zip(got, right, strict=True))
        return {place: error for place, error in errors if not error <= self._supply.tolerance}

    def _are_rounding(self, tensors: Sequence[Any], places: Sequence[int], got: Any) -> bool:
        """Whether outputs, by their numbers, have lost to cancellation what they are off by, as
        has the gradient of a bias before a batch normalisation: float64 gives them within what
        inputs do that are moved by a tenth of the tolerance."""
        tolerance, generator = self._supply.tolerance, torch.Generator().manual_seed(0)
        exactly, moved, most = list[Any](), list[Any](), 0.0
        for tensor in tensors:
            doubled = tensor.double() if tensor.is_floating_point() else tensor
            exactly.append(doubled)
            if doubled.dtype == torch.float64:
                draws = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
                factors = 1 + (2 * draws - 1) * tolerance / 10
                doubled = doubled.clone().mul_(factors.to(tensor.device))
                most = max(most, tolerance * float(doubled.abs().max()))
            moved.append(doubled)
        try:
            exact, near = self._eager(*exactly), self._eager(*moved)
        except RuntimeError:  # an operator that takes other dtypes
            return False
        return all(
            exact[place].dtype == torch.float64
            # Where the distance is large, another element is chosen, or the like.
            and _distance(got[place], exact[place]) <= _distance(near[place], exact[place]) <= most
            for place in places
        )

    def _apart(self, tensors: Sequence[Any]) -> list[Any]:
        """The tensors, with copies of those that are replaced."""
        own = list(tensors)
        for _, number in self._replaced:
            own[number] = own[number].detach().clone()
        return own

    def _finished(self, function: Function, *tensors: Any) -> None:
        function(*tensors)
        self._supply.finish()

    def _failed(self, message: str) -> Function:
        self._broken, self._function = True, self._eager
        self._notices.warn("call", f"region {self.__name__}: {message}")
        return self._eager


def raced(library: Function, pytorch: Function, clock: Clock = time.perf_counter) -> RaceResult:
    """The medians of calls of both in turns, each of which was called before."""
    begin_s, times_s = clock(), list[tuple[float, float]]()
    while True:
        marks_s = [clock()]
        for function in (library, pytorch):
            function()
            marks_s.append(clock())
        times_s.append((marks_s[1] - marks_s[0], marks_s[2] - marks_s[1]))
        spent_s = marks_s[2] - begin_s
        if spent_s >= (_RACE_S if len(times_s) >= _ROUNDS else _LONGEST_S):
            library_s, pytorch_s = zip(*times_s, strict=True)
            return RaceResult(library_s=median(library_s), pytorch_s=median(pytorch_s))


def _distance(tensor: torch.Tensor, exact: torch.Tensor) -> float:
    return float((tensor.double() - exact).abs().max())


def _error(got: torch.Tensor, right: torch.Tensor) -> float:
    """The error of an output, relative to its greatest value.

    Rounding may turn the few comparisons whose sides are nearly equal, so that a small
    share of bools and integers may differ.
    """
    if right.is_complex():
        return _error(torch.view_as_real(got), torch.view_as_real(right))
    if not right.is_floating_point():
        share = float((got != right).double().mean())
        return 0.0 if share <= TOLERANCE else float("inf")
    return relative_error(got.double().cpu().numpy(), right.double().cpu().numpy())

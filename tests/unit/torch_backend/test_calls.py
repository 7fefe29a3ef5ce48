"""Calls of regions: PyTorch's until a library has shown the same, and PyTorch's again where
anything fails."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tuner.models.library.region_cache import RaceResult  # noqa: E402
from tuner.runtime.loader import LibraryError  # noqa: E402
from tuner.torch.call import RegionCall, raced  # noqa: E402
from tuner.torch.native import InputRefused  # noqa: E402
from tuner.torch.notices import Notices, TunerWarning  # noqa: E402

PATH = Path("library.so")
NAN = float("nan")


class Given:
    """A supply that offers a function as the library at once."""

    tolerance = 1e-4

    def __init__(self, function: Callable[..., Any] | None) -> None:
        self.function = function
        self.discarded = 0
        self.failed: Callable[[str], Any] | None = None
        self.races: list[RaceResult] = []

    def begin(self, call: RegionCall) -> None:
        call.offer(PATH)

    def discard(self) -> None:
        self.discarded += 1

    def finish(self) -> None: ...

    def note(self, race: RaceResult) -> None:
        self.races.append(race)

    def load(self, path: Path, failed: Callable[[str], Any]) -> Any:
        assert path == PATH
        self.failed = failed
        if self.function is None:
            raise LibraryError("no library")
        return self.function


def eager(x: Any) -> Any:
    return (x * 2,)


class Seconds:
    """A clock on which calls of PyTorch take a second, others what they say."""

    def __init__(self, result: Any = None) -> None:
        self.now_s, self.result = 0.0, result

    def __call__(self) -> float:
        return self.now_s

    def eager(self, x: Any) -> Any:
        self.now_s += 1
        return eager(x) if self.result is None else self.result


def region(function: Callable[..., Any] | None) -> tuple[RegionCall, Given]:
    """A region whose library is faster, as far as its clock shows."""
    supply, clock = Given(function), Seconds()
    return RegionCall("region_1", clock.eager, supply, Notices(), clock), supply


@pytest.mark.parametrize(("library_s", "used"), [(0.5, True), (1.0, True), (1.25, False)])
def test_a_slower_library_is_not_used(library_s: float, used: bool) -> None:
    clock = Seconds()
    result = torch.full((3,), 2.0)

    def library(x: Any) -> Any:
        clock.now_s += library_s
        return (result,)

    supply = Given(library)
    call = RegionCall("region_1", clock.eager, supply, Notices(), clock)
    assert call(torch.ones(3))[0] is not result
    assert (call(torch.ones(3))[0] is result) == used
    assert supply.races == [RaceResult(library_s=library_s, pytorch_s=1.0)]
    assert supply.discarded == 0


@pytest.mark.parametrize(("library_s", "again"), [(0.5, False), (2.0, True)])
def test_only_a_race_that_was_lost_is_run_again(library_s: float, again: bool) -> None:
    call, supply = region(eager)
    call.offer(PATH, RaceResult(library_s=library_s, pytorch_s=1.0))
    call(torch.ones(3))
    assert len(supply.races) == again


@pytest.mark.parametrize(("call_s", "rounds"), [(10.0, 1), (0.5, 3), (1e-2, 15), (1e-3, 150)])
def test_a_race_is_bounded(call_s: float, rounds: int) -> None:
    """With an outlier in it, which a median does not follow."""
    clock, calls = Seconds(), [0]

    def called() -> None:
        calls[0] += 1
        clock.now_s += call_s * (1.5 if calls[0] == 2 else 1)

    race = raced(called, called, clock)
    assert abs(calls[0] / 2 - rounds) <= 1
    assert race.library_s == pytest.approx(call_s)


def test_a_library_that_fails_at_once_is_not_used() -> None:
    calls = [0]

    def broken(x: Any) -> Any:
        calls[0] += 1
        assert supply.failed is not None
        return supply.failed("its library failed with status 6")(x)

    call, supply = region(broken)
    with pytest.warns(TunerWarning, match="status 6; PyTorch computes it instead"):
        assert call(torch.ones(3))[0].tolist() == [2.0] * 3
    before = calls[0]
    assert call(torch.ones(3))[0].tolist() == [2.0] * 3 and calls[0] == before
    assert supply.races == []


def test_a_library_is_used_after_it_has_shown_the_same() -> None:
    calls: list[str] = []

    def library(x: Any) -> Any:
        calls.append("library")
        return (x + x,)

    call, _ = region(library)
    x = torch.ones(3)
    assert call(x)[0].tolist() == [2.0] * 3 and calls  # compared with PyTorch's, and raced
    calls.clear()
    assert call(x)[0].tolist() == [2.0] * 3 and calls == ["library"]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: (x * 2.001,), "is off by 0.0005 of the greatest value, 0.0001 is allowed"),
        (lambda x: (x * float("nan"),), "is off by inf"),
        (None, "no library"),
    ],
)
def test_a_wrong_library_is_not_used(function: Callable[..., Any] | None, reason: str) -> None:
    call, supply = region(function)
    with pytest.warns(TunerWarning, match=f"region region_1: .*{reason}.*PyTorch computes it"):
        call(torch.ones(3))
    assert supply.discarded == 1
    assert call(torch.ones(3))[0].tolist() == [2.0] * 3


@pytest.mark.parametrize(
    ("result", "used"), [(3.0, True), (-9.0, True), (1e5, False), (1e8, False), (NAN, False)]
)
def test_what_only_rounding_is_left_of_is_judged_by_float64(result: float, used: bool) -> None:
    """Float64 gives 1 here, PyTorch 0 in float32."""
    clock, x = Seconds(), torch.tensor([1e8, 1.0, -1e8])

    def cancelled(x: Any) -> Any:
        clock.now_s += 1
        return x * 2, (x[:1] + x[1:2]) + x[2:]

    supply = Given(lambda x: (x * 2, torch.full((1,), result)))
    call = RegionCall("region_1", cancelled, supply, Notices(), clock)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        assert call(x)[1].item() == 0
    assert call.is_pytorch == (not used) and len(given) == (not used)
    assert supply.discarded == (not used)


def test_what_jumps_is_not_rounding() -> None:
    supply = Given(lambda x: (torch.full((3,), 0.5),))
    call = RegionCall("region_1", lambda x: ((x - 1).sign(),), supply, Notices())
    with pytest.warns(TunerWarning, match="is off by"):
        call(torch.ones(3))
    assert call.is_pytorch and supply.discarded == 1


def test_a_library_takes_equal_elements_in_the_order_of_positions() -> None:
    """PyTorch's selections take them in any."""
    clock, x = Seconds(), (torch.arange(4000) % 7).float()

    def selected(x: Any) -> Any:
        clock.now_s += 1
        return tuple(torch.ops.aten.topk.default(x, 2000))

    order = torch.sort(x, stable=True, descending=True)
    supply = Given(lambda x: tuple(part[:2000] for part in order))
    call = RegionCall("region_1", selected, supply, Notices(), clock)
    call(x)
    assert not call.is_pytorch and supply.discarded == 0


def test_a_library_is_tried_on_copies_of_what_it_writes() -> None:
    def library(x: Any, y: Any) -> Any:
        x += y
        return (x,)

    clock, supply = Seconds(), Given(library)

    def slow(x: Any, y: Any) -> Any:
        clock.now_s += 1
        return (x + y,)

    call = RegionCall("region_1", slow, supply, Notices(), clock, replaced=[(0, 0)])
    x, y = torch.ones(3), torch.ones(3)
    assert call(x, y)[0].tolist() == [2.0] * 3 and x.tolist() == [1.0] * 3
    assert len(supply.races) == 1
    assert call(x, y)[0] is x and x.tolist() == [2.0] * 3 and y.tolist() == [1.0] * 3


def test_a_library_races_what_pytorch_runs_in_its_place() -> None:
    """As an optimiser's step, which writes in place: here in half of the time."""
    clock = Seconds()

    def library(x: Any) -> Any:
        clock.now_s += 0.75
        return (x * 2,)

    def in_place(x: Any) -> None:
        clock.now_s += 0.5
        x.mul_(2)

    supply = Given(library)
    call = RegionCall(
        "region_1", clock.eager, supply, Notices(), clock, replaced=[(0, 0)], rival=in_place
    )
    x = torch.ones(3)
    assert call(x)[0].tolist() == [2.0] * 3 and x.tolist() == [1.0] * 3
    assert supply.races == [RaceResult(library_s=0.75, pytorch_s=0.5)] and call.is_pytorch


def test_a_library_that_fails_while_it_writes_is_not_used() -> None:
    def library(x: Any) -> Any:
        x.zero_()
        raise LibraryError("it may have replaced some of its inputs")

    supply = Given(library)
    call = RegionCall("region_1", eager, supply, Notices(), replaced=[(0, 0)])
    x = torch.ones(3)
    with pytest.warns(TunerWarning, match="may have replaced"):
        assert call(x)[0].tolist() == [2.0] * 3
    assert call(x)[0].tolist() == [2.0] * 3 and x.tolist() == [1.0] * 3 and supply.discarded == 1


def test_a_failing_call_is_computed_by_pytorch() -> None:
    calls = 0
    call, supply = region(lambda x: (x * 2,))
    call(torch.ones(3))

    def broken(x: Any) -> Any:
        nonlocal calls
        calls += 1
        assert supply.failed is not None
        return supply.failed("its library failed with status 6")(x)

    call._function = broken
    with pytest.warns(TunerWarning, match="status 6; PyTorch computes it instead"):
        assert call(torch.ones(3))[0].tolist() == [2.0] * 3
    assert call(torch.ones(3))[0].tolist() == [2.0] * 3 and calls == 1


def test_what_a_library_refuses_pytorch_raises_and_the_library_stays() -> None:
    calls, clock = list[str](), Seconds()

    def pytorch(x: Any) -> Any:
        if x[0] > 9:
            raise IndexError("index out of range in self")
        return clock.eager(x)

    def library(x: Any) -> Any:
        calls.append("library")
        if x[0] > 9:
            raise InputRefused("an index is out of its range")
        return eager(x)

    call = RegionCall("region_1", pytorch, Given(library), Notices(), clock)
    for _ in range(2):
        with pytest.raises(IndexError) as raised:
            call(torch.full((3,), 10.0))
        assert raised.value.__context__ is None
        assert call(torch.ones(3))[0].tolist() == [2.0] * 3
    calls.clear()
    call(torch.ones(3))
    assert calls == ["library"]


def test_each_kind_of_trouble_is_warned_of_once() -> None:
    notices = Notices()
    for number in range(3):
        call = RegionCall(f"region_{number}", eager, Given(None), notices)
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            call(torch.ones(2))
        assert len(given) == (number == 0)


def test_comparisons_may_turn_where_sides_are_nearly_equal() -> None:
    right = torch.zeros(100_000, dtype=torch.bool)
    for wrong, stays in ((5, True), (20, False)):
        got = right.clone()
        got[:wrong] = True
        supply = Given(lambda x, got=got: (got,))
        clock = Seconds((right,))
        call = RegionCall("region", clock.eager, supply, Notices(), clock)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(right)
        assert (call(right)[0] is got) == stays


def test_several_threads_may_call() -> None:
    begun: list[RegionCall] = []

    class Counted(Given):
        def begin(self, call: RegionCall) -> None:
            begun.append(call)
            super().begin(call)

    clock = Seconds()
    given = Counted(lambda x: (x + x,))
    call = RegionCall("region_1", clock.eager, given, Notices(), clock)
    barrier, results = threading.Barrier(8), list[Any]()

    def work() -> None:
        barrier.wait()
        results.extend(
            call(torch.full((2,), float(n)))[0].tolist() == [2.0 * n] * 2 for n in range(50)
        )

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 400 and all(results) and len(begun) == 1

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

from tuner.runtime.loader import LibraryError  # noqa: E402
from tuner.torch.call import RegionCall  # noqa: E402
from tuner.torch.notices import Notices, TunerWarning  # noqa: E402

PATH = Path("library.so")


class Given:
    """A supply that offers a function as the library at once."""

    tolerance = 1e-4

    def __init__(self, function: Callable[..., Any] | None) -> None:
        self.function = function
        self.discarded = 0
        self.failed: Callable[[str], Any] | None = None

    def begin(self, call: RegionCall) -> None:
        call.offer(PATH)

    def discard(self) -> None:
        self.discarded += 1

    def load(self, path: Path, failed: Callable[[str], Any]) -> Any:
        assert path == PATH
        self.failed = failed
        if self.function is None:
            raise LibraryError("no library")
        return self.function


def eager(x: Any) -> Any:
    return (x * 2,)


def region(function: Callable[..., Any] | None) -> tuple[RegionCall, Given]:
    supply = Given(function)
    return RegionCall("region_1", eager, supply, Notices()), supply


def test_a_library_is_used_after_it_has_shown_the_same() -> None:
    calls: list[str] = []

    def library(x: Any) -> Any:
        calls.append("library")
        return (x + x,)

    call, _ = region(library)
    x = torch.ones(3)
    assert call(x)[0].tolist() == [2.0] * 3 and calls == ["library"]  # compared with PyTorch's
    assert call(x)[0].tolist() == [2.0] * 3 and calls == ["library"] * 2


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
        call = RegionCall("region", lambda x: (right,), supply, Notices())
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

    call = RegionCall("region_1", eager, Counted(lambda x: (x + x,)), Notices())
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

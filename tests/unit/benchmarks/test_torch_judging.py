"""What counts as right in the suites of the PyTorch backend."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks.torch.judging import NotRun, error_of, judged, limited  # noqa: E402

INF, NAN = float("inf"), float("nan")


def test_errors_are_relative_to_the_greatest_value() -> None:
    right = torch.tensor([1.0, -10.0])
    assert error_of(torch.tensor([1.1, -10.0]), right) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(
    ("got", "right", "same"),
    [
        ([NAN, 1.0], [NAN, 1.0], True),
        ([INF, 1.0], [INF, 1.0], True),
        ([INF, 1.0], [-INF, 1.0], False),
        ([NAN, 1.0], [INF, 1.0], False),
        ([0.0, 1.0], [NAN, 1.0], False),
    ],
)
def test_special_values_must_be_the_same(got: list[float], right: list[float], same: bool) -> None:
    assert (error_of(torch.tensor(got), torch.tensor(right)) == 0) == same


def test_other_shapes_dtypes_and_layouts_are_wrong() -> None:
    right = torch.ones(2, 2)
    for got in (torch.ones(2), right.double(), right.to_sparse()):
        assert error_of(got, right) == INF


def test_rounding_noise_is_judged_by_float64() -> None:
    """Two results near zero that differ by all of their value, and one that is far away."""
    exact = [torch.tensor([0.0], dtype=torch.float64)]
    right = [torch.tensor([1e-8])]
    error, is_right = judged([torch.tensor([-1e-8])], right, lambda: exact)
    assert error == pytest.approx(2.0) and is_right
    assert not judged([torch.tensor([1e-7])], right, lambda: exact)[1]
    assert not judged([torch.tensor([1.0])], [torch.tensor([2.0])], lambda: [torch.ones(1) * 2])[1]
    assert not judged([], right, lambda: exact)[1]


def test_what_takes_too_long_is_not_run() -> None:
    with pytest.raises(NotRun, match="more than 1 s"), limited(1):
        while True:
            pass

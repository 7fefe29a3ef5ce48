"""Whether a compiled model computes what the model itself does, within a time limit."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from tuner.models.reference.accuracy import TOLERANCE


class NotRun(BaseException):
    """A case that this machine does not run, or whose model fails by itself.

    It is no Exception, since Dynamo makes its own of each that a backend raises.
    """


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raises NotRun after so many seconds."""

    def ended(number: int, frame: Any) -> None:
        raise NotRun(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def tensors_of(result: Any) -> list[Any]:
    leaves = torch.utils._pytree.tree_leaves(
        result.to_tuple() if hasattr(result, "to_tuple") else result
    )
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def doubled(values: Sequence[Any]) -> list[Any]:
    """The values, floating-point tensors among them in float64."""
    is_float = [isinstance(value, torch.Tensor) and value.is_floating_point() for value in values]
    return [value.double() if f else value for value, f in zip(values, is_float, strict=True)]


def error_of(got: Any, right: Any) -> float:
    """The greatest error, relative to the greatest finite value; infinity where a NaN or an
    infinity is not in both."""
    if (got.shape, got.dtype, got.layout) != (right.shape, right.dtype, right.layout):
        return float("inf")
    if right.layout != torch.strided:
        got, right = got.to_dense(), right.to_dense()
    if not right.numel():
        return 0.0
    if not right.is_floating_point() and not right.is_complex():
        return float((got != right).double().mean())
    got, right = _wide(got), _wide(right)
    finite = right.isfinite()
    if not torch.equal(got.isfinite(), finite):
        return float("inf")
    others = torch.equal(
        got[~finite].nan_to_num(0.0, 1.0, -1.0), right[~finite].nan_to_num(0.0, 1.0, -1.0)
    )
    if not others or not torch.equal(got.isnan(), right.isnan()):
        return float("inf")
    a, b = (tensor.where(finite, 0) for tensor in (got, right))
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-30))


def _wide(tensor: Any) -> Any:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def judged(
    got: Sequence[Any], right: Sequence[Any], exactly: Callable[[], Sequence[Any]]
) -> tuple[float, bool]:
    """The greatest error of an output, and whether it is right.

    Where nothing but rounding is left of an output, PyTorch's own is as far from what
    float64 gives as ours: an output is right too where it is no farther from that than
    twice PyTorch's. `exactly` gives the outputs in float64.
    """
    if len(got) != len(right):
        return float("inf"), False
    errors = [error_of(a, b) for a, b in zip(got, right, strict=True)]
    greatest = max(errors, default=0.0)
    if greatest <= TOLERANCE:
        return greatest, True
    if greatest == float("inf"):
        return greatest, False
    far = [place for place, error in enumerate(errors) if not error <= TOLERANCE]
    exact = exactly()
    return greatest, all(_distance(got[n], exact[n]) <= _bound(right[n], exact[n]) for n in far)


def _bound(right: Any, exact: Any) -> float:
    return max(2 * _distance(right, exact), TOLERANCE * float(exact.abs().max()))


def _distance(tensor: Any, exact: Any) -> float:
    return float((_wide(tensor) - _wide(exact)).abs().max())

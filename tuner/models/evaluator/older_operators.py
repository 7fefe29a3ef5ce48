"""Operators of older opsets for ONNX's reference evaluator, which computes them by newer
rules or by those of training, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_one_hot as evaluator

from tuner.models.evaluator.average_pool import AveragePool
from tuner.models.evaluator.control_operators import control_operators
from tuner.models.evaluator.recurrent_operators import recurrent_operators

Array = np.ndarray[Any, np.dtype[Any]]


def operators_of(opset: int) -> list[type[OpRun]]:
    """What the evaluator is given for a model of this opset."""
    operators = [*control_operators(opset), *recurrent_operators(), AveragePool, OneHot]
    if opset < 13:
        operators += [Softmax, LogSoftmax, Hardmax]
    if opset < 14:
        operators += [BatchNormalization]
    if opset < 19:
        operators += [QuantizeLinear, DequantizeLinear]
    if opset < 11:
        operators += [Resize, Upsample]
    return operators


class OneHot(evaluator.OneHot):  # type: ignore[misc]  # onnx has no types here
    """The depth may be a vector of one element, with which the evaluator's own fails."""

    def _run(self, indices: Array, depth: Array, values: Array, **given: Any) -> tuple[Array]:
        result: tuple[Array] = super()._run(indices, np.reshape(depth, ()), values, **given)
        return result


class _Older(OpRun):  # type: ignore[misc]  # onnx has no types here
    op_domain = ""


class BatchNormalization(_Older):
    """Of inference until opset 13: by the stored statistics."""

    def _run(
        self, x: Array, scale: Array, bias: Array, mean: Array, variance: Array, **given: Any
    ) -> tuple[Array, ...]:
        shape = (-1, *(1,) * (x.ndim - 2))
        factor = (scale / np.sqrt(variance + given["epsilon"])).reshape(shape)
        centred = x - mean.reshape(shape)
        return ((centred * factor + bias.reshape(shape)).astype(x.dtype),)


class QuantizeLinear(_Older):
    """Until opset 18: to 8-bit integers, by one scale or one for each index of an axis."""

    def _run(
        self, x: Array, scale: Array, zero: Array | None = None, axis: int = 1, **given: Any
    ) -> tuple[Array, ...]:
        origin = np.zeros(scale.shape, np.uint8) if zero is None else zero
        steps = np.rint(x / _spread(scale, x, axis)) + _spread(origin, x, axis)
        limits = np.iinfo(origin.dtype)
        return (np.clip(steps, limits.min, limits.max).astype(origin.dtype),)


class DequantizeLinear(_Older):
    """Until opset 18."""

    def _run(
        self, x: Array, scale: Array, zero: Array | None = None, axis: int = 1, **given: Any
    ) -> tuple[Array, ...]:
        steps = x.astype(np.int64)
        if zero is not None:
            steps = steps - _spread(zero, x, axis)
        return (steps.astype(scale.dtype) * _spread(scale, x, axis),)


def _spread(parameter: Array, x: Array, axis: int) -> Array:
    """Scales or zero points, to be broadcast over x."""
    if parameter.size == 1:
        return parameter.reshape(())
    shape = [1] * x.ndim
    shape[axis] = -1
    return parameter.reshape(shape)


class Softmax(_Older):
    """Until opset 12: all dimensions from the axis on are one."""

    def _run(self, x: Array, axis: int = 1, **given: Any) -> tuple[Array, ...]:
        return (np.exp(_log_softmax(_rows(x, axis))).reshape(x.shape).astype(x.dtype),)


class LogSoftmax(_Older):
    """Until opset 12, as Softmax."""

    def _run(self, x: Array, axis: int = 1, **given: Any) -> tuple[Array, ...]:
        return (_log_softmax(_rows(x, axis)).reshape(x.shape).astype(x.dtype),)


class Hardmax(_Older):
    """Until opset 12, as Softmax: 1 at the first greatest element of a row."""

    def _run(self, x: Array, axis: int = 1, **given: Any) -> tuple[Array, ...]:
        rows = _rows(x, axis)
        result = np.zeros_like(rows)
        result[np.arange(len(rows)), rows.argmax(axis=1)] = 1
        return (result.reshape(x.shape),)


def _rows(x: Array, axis: int) -> Array:
    axis = axis % x.ndim if x.ndim else 0
    return x.reshape(int(np.prod(x.shape[:axis])), -1)


def _log_softmax(rows: Array) -> Array:
    less = rows - rows.max(axis=1, keepdims=True)
    return np.asarray(less - np.log(np.exp(less).sum(axis=1, keepdims=True)))


class Upsample(_Older):
    """Opset 9: coordinates are the output's divided by the scale."""

    def _run(
        self, x: Array, scales: Array, mode: str = "nearest", **given: Any
    ) -> tuple[Array, ...]:
        result = x
        for axis, scale in enumerate(map(float, scales)):
            if scale != 1:
                result = _resampled(result, axis, scale, linear=mode == "linear")
        return (result.astype(x.dtype),)


class Resize(Upsample):
    """Opset 10: as Upsample."""


def _resampled(x: Array, axis: int, scale: float, *, linear: bool) -> Array:
    extent = x.shape[axis]
    places = np.arange(int(np.floor(extent * scale))) / scale
    low = np.clip(np.floor(places).astype(np.int64), 0, extent - 1)
    if not linear:
        return x.take(low, axis)
    high = np.minimum(low + 1, extent - 1)
    part = (places - low).reshape(-1, *(1,) * (x.ndim - 1 - axis))
    return np.asarray(x.take(low, axis) * (1 - part) + x.take(high, axis) * part)

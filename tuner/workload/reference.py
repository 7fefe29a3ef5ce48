"""The float64 reference that kernels are checked against, and the error they may have.

Floats are evaluated in float64 without rounding in between. Integers are evaluated in
int64 and wrapped into a stage's dtype when it is stored, uint32 and uint64 in themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.errors import UsageError
from tuner.workload.arrays import carrier
from tuner.workload.dual import Dual, Tensors
from tuner.workload.evaluator import evaluate_stage, widest_operand
from tuner.workload.expression import (
    Binary,
    Cast,
    Expression,
    Read,
    Scalar,
    Stage,
    Unary,
    children,
    reads,
    walk,
)
from tuner.workload.scalar_operators import BINARY_OPERATORS, UNARY_OPERATORS
from tuner.workload.slices import sliced

Arrays = Mapping[str, NDArray[Any]]

NARROW = ("int8", "uint8", "int16", "uint16")
# Unit roundoff, half the distance from 1 to the next number (IEEE 754; bfloat16 keeps 8 bits).
UNIT_ROUNDOFF: Mapping[str, float] = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}
# Greatest finite value, and the size below which values may be flushed to zero (never
# for float16, whose subnormals are kept).
_FLOATS: Mapping[str, tuple[float, float]] = {
    "float64": (1.7976931348623157e308, 2.0**-1022),
    "float32": (3.4028234663852886e38, 2.0**-126),
    "float16": (65504.0, 2.0**-24),
    "bfloat16": (3.3895313892515355e38, 2.0**-126),
}
_SMALLEST: Mapping[str, float] = {
    "float64": 2.0**-1074,
    "float32": 2.0**-149,
    "float16": 2.0**-24,
    "bfloat16": 2.0**-133,
}
# Allowed error of a vectorised function in units of the last place (two unit roundoffs).
FUNCTION_ULP = 4
# The factor c of c * u * sqrt(K). Rounding errors of a sum are a random walk, of which
# 4 standard deviations are allowed.
SUM_FACTOR = 4.0
# Distance within which exp and its kind differ from their tangents by a seventh.
_LINEAR = 0.25
# Elements of intermediates, 16 bytes each with their magnitudes, that are computed at once.
# Smaller parts take a third of the time, because the allocator reuses their memory and
# nothing touches new pages. Where parts compute something again, memory alone counts.
PART_ELEMENTS = 1 << 22
MOST_ELEMENTS = 1 << 28
# Parts of generated inputs are alike: so many tell the sizes of all of them.
_SAMPLED_PARTS = 3
# Relative error that each numerics may reach, whatever the dtype.
LEAST_BOUND: Mapping[str, float] = {"strict": 0.0, "fast": 1e-4, "tensor": 2e-3}


def evaluate(expression: Expression, inputs: Arrays) -> dict[str, NDArray[Any]]:
    """The outputs by name, in the dtypes of `carrier`.

    Inputs have the declared shapes and any numeric dtype. Takes 8 bytes for each
    element of the tensors alive at one stage; temporaries are cut into blocks of at
    most 128 MiB. Where intermediates have more than `PART_ELEMENTS`, they are computed
    some rows at a time, as far as each row's are its own. Raises `UsageError` for an
    input that is missing, unknown or of another shape.
    """
    return _joined(expression, inputs, track=False)[0]


def magnitude(expression: Expression, inputs: Arrays) -> dict[str, NDArray[np.float64]]:
    """For each output element the size that its rounding errors are relative to.

    Sums and products: the same on absolute values. A function f adds |f'(x)| times the
    magnitude of its argument, a quotient the relative magnitude of its divisor, max and
    min the greater magnitude, a condition that of the chosen side. So exp(x - max) in a
    softmax counts |x| + |max|, and cancellation in a layer norm counts what was
    cancelled.
    """
    return evaluate_with_magnitude(expression, inputs)[1]


def evaluate_with_magnitude(
    expression: Expression, inputs: Arrays
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
    """`evaluate` and `magnitude` in one pass."""
    return _joined(expression, inputs, track=True)


def largest_value(expression: Expression, inputs: Arrays) -> float:
    """The largest absolute value of any stage, as a share of its dtype's range.

    Of many parts of the outputs, only some are computed: the inputs are drawn at random.
    Above 1, or infinite, where a stage overflows. Where everything is an integer, those
    narrower than int32 do not count: they are computed in int32 and wrapped.
    """
    tensors = _given(expression, inputs)
    return max(_largest_value(part, tensors) for part in _sampled_parts(expression))


def _largest_value(expression: Expression, given: Tensors) -> float:
    tensors = _run(expression, given, track=False, wrap=False)
    shares = [0.0]
    floats = any("float" in tensor.dtype for tensor in expression.tensors.values())
    for stage in expression.stages:
        if stage.dtype == "bool" or (stage.dtype in NARROW and not floats):
            continue
        top = float(np.abs(tensors[stage.name].value.astype(np.float64)).max(initial=0))
        shares.append(top / greatest(stage.dtype) if math.isfinite(top) else math.inf)
    return max(shares)


def errors_are_linear(expression: Expression, inputs: Arrays) -> bool:
    """Whether the errors of sums are small enough for magnitudes, which are first-order.

    Where much cancels in a sum, its error may be so large that a function of it, such as
    the sigmoid of SiLU, leaves its tangent.
    """
    summed: set[str] = set()  # stages that depend on a sum
    curved = []
    for stage in expression.stages:
        below = any(read.tensor in summed for read in reads(stage.body))
        if below and any(
            isinstance(node, Unary) and UNARY_OPERATORS[node.op].is_curved
            for node in walk(stage.body)
        ):
            curved.append(stage)
        if below or stage.reducer in ("sum", "prod"):
            summed.add(stage.name)
    if not curved:
        return True
    bound = error_bound(expression)
    names = [stage.name for stage in curved]
    given = _given(expression, inputs)
    return all(_stays_linear(part, names, given, bound) for part in _sampled_parts(expression))


def _stays_linear(
    expression: Expression, curved_stages: Sequence[str], given: Tensors, bound: float
) -> bool:
    """Whether the errors of what the named stages are computed from stay small."""
    curved = [stage for stage in expression.stages if stage.name in curved_stages]
    tensors = dict(given)
    for stage in expression.stages[: expression.stages.index(curved[-1]) + 1]:
        if stage in curved and bound * widest_operand(stage, tensors) > _LINEAR:
            return False
        if stage is not curved[-1]:
            tensors[stage.name] = evaluate_stage(stage, tensors, track=True)
    return True


def smallest(dtype: str) -> float:
    """The smallest positive float of a dtype, which is subnormal."""
    return _SMALLEST[dtype]


def greatest(dtype: str) -> float:
    """The greatest finite value of a dtype."""
    if "float" in dtype:
        return _FLOATS[dtype][0]
    return float(np.iinfo(dtype).max)


def _parts(expression: Expression) -> Iterator[Expression]:
    """The expression, or slices of it where its intermediates are many elements."""
    between = (s.tensor.shape for s in expression.stages if s.name not in expression.outputs)
    elements = sum(map(math.prod, between))
    slices = sliced(expression) if elements > PART_ELEMENTS else None
    most = PART_ELEMENTS if slices and not slices.repeated else MOST_ELEMENTS
    if slices is None or elements <= most:
        yield expression
        return
    free = max(most - slices.whole_elements, 0)
    count = max(min(free // max(slices.row_elements, 1), slices.extent), 1)
    for first in range(0, slices.extent, count):
        yield slices.part(first, min(count, slices.extent - first))


def _sampled_parts(expression: Expression) -> list[Expression]:
    """The parts, or the first, the middle and the last of many."""
    parts = list(_parts(expression))
    places = np.linspace(0, len(parts) - 1, min(_SAMPLED_PARTS, len(parts))).astype(int)
    return [parts[place] for place in places]


def _joined(
    expression: Expression, inputs: Arrays, *, track: bool
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
    """Values and magnitudes of the outputs, from those of the parts.

    Without `track` there are no magnitudes.
    """
    values: dict[str, list[NDArray[Any]]] = {name: [] for name in expression.outputs}
    sizes: dict[str, list[NDArray[np.float64]]] = {name: [] for name in expression.outputs}
    given = _given(expression, inputs)
    for part in _parts(expression):
        tensors = _run(part, given, track=track, wrap=True)
        for name in expression.outputs:
            values[name].append(tensors[name].value)
            if track:
                sizes[name].append(tensors[name].size)
    if not any(len(parts) > 1 for parts in values.values()):
        return {name: parts[0] for name, parts in values.items()}, {
            name: parts[0] for name, parts in sizes.items() if parts
        }
    slices = sliced(expression)
    assert slices is not None

    def whole(name: str, parts: list[NDArray[Any]]) -> NDArray[Any]:
        dimension = slices.dimension(name)
        return parts[0] if dimension is None else np.concatenate(parts, axis=dimension)

    return {name: whole(name, parts) for name, parts in values.items()}, {
        name: whole(name, parts) for name, parts in sizes.items() if parts
    }


def _given(expression: Expression, inputs: Arrays) -> dict[str, Dual]:
    """The inputs as tensors. Raises `UsageError` for arrays that are not those."""
    for name in inputs:
        if name not in {tensor.name for tensor in expression.inputs}:
            raise UsageError(
                f"unknown input {name!r}; {expression.name} takes "
                f"{', '.join(tensor.name for tensor in expression.inputs)}"
            )
    tensors: dict[str, Dual] = {}
    for tensor in expression.inputs:
        if tensor.name not in inputs:
            raise UsageError(
                f"input {tensor.name!r} is missing; give an array of shape {list(tensor.shape)}"
            )
        array = np.asarray(inputs[tensor.name])
        if array.shape != tensor.shape:
            raise UsageError(
                f"input {tensor.name!r} has shape {list(array.shape)}, {expression.name} takes "
                f"{list(tensor.shape)}"
            )
        tensors[tensor.name] = Dual(array.astype(carrier(tensor.dtype)))
    return tensors


def _run(expression: Expression, given: Tensors, *, track: bool, wrap: bool) -> dict[str, Dual]:
    tensors = dict(given)
    last = {
        read.tensor: number
        for number, stage in enumerate(expression.stages)
        for read in reads(stage.body)
    }
    for number, stage in enumerate(expression.stages):
        tensors[stage.name] = evaluate_stage(stage, tensors, track=track, wrap=wrap)
        for name in [
            name
            for name, last_use in last.items()
            if last_use == number and name not in expression.outputs and wrap
        ]:
            del tensors[name]
    return tensors


def error_bound(expression: Expression, numerics: str = "strict") -> float:
    """The largest error of a correct kernel, relative to `magnitude`.

    It is c * u * sqrt(K) plus other roundings. K adds up the reductions along the
    longest path to an output, u is the unit roundoff of the accumulators. Each
    operation adds u, each function what `FUNCTION_ULP` allows, each tensor stored in
    float16 or bfloat16 its own roundoff. 0 for integer programs.
    """
    if not any(
        "float" in stage.dtype or ("float" in stage.accumulator and stage.reducer)
        for stage in expression.stages
    ):
        return 0.0
    lengths: dict[str, int] = {}
    rounds: dict[str, float] = {}
    for stage in expression.stages:
        before = [read.tensor for read in reads(stage.body) if read.tensor in lengths]
        length = (
            math.prod(axis.extent for axis in stage.reduce_axes)
            if stage.reducer in ("sum", "prod")
            else 0
        )
        lengths[stage.name] = max((lengths[name] for name in before), default=0) + length
        rounds[stage.name] = max((rounds[name] for name in before), default=0.0) + _rounding(stage)
    unit = UNIT_ROUNDOFF["float64"] if _all_double(expression) else UNIT_ROUNDOFF["float32"]
    bound = max(
        SUM_FACTOR * unit * math.sqrt(lengths[name]) + rounds[name] for name in expression.outputs
    )
    return max(bound, LEAST_BOUND[numerics])


def _all_double(expression: Expression) -> bool:
    """Whether nothing is computed in less than float64."""
    floats = [stage.dtype for stage in expression.stages if "float" in stage.dtype] + [
        t.dtype for t in expression.inputs if "float" in t.dtype
    ]
    return all(dtype == "float64" for dtype in floats)


def _rounding(stage: Stage) -> float:
    """Relative roundoff of one evaluation of the body and of storing it.

    Where the reference converts to a narrow float too, a number between two of these may go
    to the other one: that is twice its roundoff.
    """
    double = stage.dtype == "float64" and (stage.accumulator == "float64" or stage.reducer is None)
    unit = UNIT_ROUNDOFF["float64" if double else "float32"]
    narrow = [
        node.dtype
        for node in walk(stage.body)
        if isinstance(node, Cast) and node.dtype in ("float16", "bfloat16")
    ]
    stored = UNIT_ROUNDOFF.get(stage.dtype, 0.0)
    converted = sum(2 * UNIT_ROUNDOFF[dtype] for dtype in narrow)
    return unit * _operations(stage.body) + stored + converted


def _operations(node: Scalar) -> float:
    """Unit roundoffs on the longest path from a read to the root."""
    if isinstance(node, Read):
        return 0.0
    below = max((_operations(child) for child in children(node)), default=0.0)
    match node:
        case Unary(op=op) if UNARY_OPERATORS[op].is_function:
            return below + 2 * FUNCTION_ULP
        case Binary(op=operation) if BINARY_OPERATORS[operation].is_function:
            return below + 2 * FUNCTION_ULP
        case Binary(op=operation) if BINARY_OPERATORS[operation].is_rounded:
            return below + 1.0
        case _:
            return below


def max_rel_error(expression: Expression, got: Arrays, want: Arrays, magnitude: Arrays) -> float:
    """The largest |got - want| / magnitude over all outputs.

    inf where only one side is infinite or NaN. Below the smallest normal number over
    the unit roundoff (subnormals for float16) differences count as absolute, because
    values there may be flushed to zero. A value too large for the dtype may be
    infinite. Integers after a float-to-int conversion may differ by one.
    """
    worst = 0.0
    converted = any(
        isinstance(node, Cast) and "int" in node.dtype
        for stage in expression.stages
        for node in walk(stage.body)
    )
    floating = any("float" in stage.dtype for stage in expression.stages) or any(
        "float" in tensor.dtype for tensor in expression.inputs
    )
    for name in expression.outputs:
        dtype = expression.tensor(name).dtype
        slack = 1.0 if "int" in dtype and converted and floating else 0.0
        worst = max(
            worst,
            _difference(
                np.asarray(got[name]),
                want[name],
                magnitude[name],
                dtype,
                slack,
            ),
        )
    return worst


def _difference(
    got: NDArray[Any], want: NDArray[Any], size: NDArray[Any], dtype: str, slack: float
) -> float:
    if got.shape != want.shape:
        raise UsageError(f"an output has shape {list(got.shape)}, the reference {list(want.shape)}")
    # float64 does not tell large integers apart, so they are compared before.
    integers = got.dtype.kind in "iu" and want.dtype.kind in "iu"
    unequal = (got != want) if integers else np.zeros(got.shape, np.bool_)
    got, want = got.astype(np.float64), want.astype(np.float64)
    if dtype in UNIT_ROUNDOFF:
        with np.errstate(over="ignore"):
            want = np.where(
                np.isinf(got)
                & (np.abs(want) > greatest(dtype) * 0.999)
                & (np.sign(got) == np.sign(want)),
                got,
                want,
            )
    with np.errstate(all="ignore"):
        same = ~unequal & ((got == want) | (np.isnan(got) & np.isnan(want)))
        distance = np.maximum(np.abs(got - want), unequal)
        error = np.maximum(distance - slack, 0) / np.maximum(size, _floor(dtype))
    error = np.where(same, 0.0, np.where(np.isfinite(got) & np.isfinite(want), error, np.inf))
    return float(np.nan_to_num(error, nan=0.0, posinf=np.inf).max(initial=0.0))


def _floor(dtype: str) -> float:
    if dtype not in UNIT_ROUNDOFF:
        return 1.0
    return _FLOATS[dtype][1] / UNIT_ROUNDOFF[dtype]

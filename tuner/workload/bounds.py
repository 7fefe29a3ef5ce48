"""Inference of iterator ranges, and checks that no read leaves its tensor.

Index arithmetic that could wrap around is refused as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from tuner.errors import WorkloadError
from tuner.workload.affine import Affine, Domain, affine, value_range
from tuner.workload.dtypes import INTEGER_RANGES, UNSIGNED, ByteFloat, DType
from tuner.workload.expression import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expression,
    Read,
    Scalar,
    Select,
    Tensor,
    Unary,
    Var,
    children,
    reads,
    rewrite,
    walk,
)
from tuner.workload.intervals import ANY, BOOL, INTERVALS, Interval
from tuner.workload.scalar_operators import BINARY_OPERATORS, identity

# Padded affine indices stay below it in size, so that narrow index arithmetic cannot wrap.
_INDEX_LIMIT = 2**31
_ZERO = Interval(0, 0)


def is_inside(
    read: Read,
    shape: Sequence[int],
    extents: Mapping[str, int],
    dtypes: Mapping[str, DType],
) -> bool:
    """Whether a read never leaves a tensor of this shape, whatever integer tensors hold."""
    return all(
        value_range(index, extents, dtypes).is_index_of(extent)
        for index, extent in zip(read.indices, shape, strict=True)
    )


def infer_extents(
    unknown: Iterable[str],
    fixed: Mapping[str, int],
    all_reads: Iterable[Read],
    tensors: Mapping[str, Tensor],
) -> tuple[dict[str, int], tuple[str, Read, Read] | None]:
    """Extents of iterators from the tensors that they index.

    An iterator that is an index by itself runs over that dimension. If two such
    dimensions differ, the second result names the iterator and the two reads. Any other
    iterator runs as far as the unpadded affine indices in which it occurs allow. Padded
    reads only count for iterators that are in no unpadded read.
    """
    extents, iterators, everything = dict(fixed), list(unknown), list(all_reads)
    unpadded = [read for read in everything if read.pad is None]
    for group in (unpadded, [read for read in everything if read.pad is not None]):
        settled, first = set(extents), dict[str, Read]()
        for read in group:
            for index, extent in zip(read.indices, tensors[read.tensor].shape, strict=True):
                if not isinstance(index, Var) or index.name in settled:
                    continue
                if extents.setdefault(index.name, extent) != extent:
                    return extents, (index.name, first[index.name], read)
                first.setdefault(index.name, read)
    forms = [
        (affine(index), extent)
        for read in dict.fromkeys(unpadded)
        for index, extent in zip(read.indices, tensors[read.tensor].shape, strict=True)
        if not isinstance(index, Var | Const)
    ]
    while True:
        bound = {
            name: largest
            for name in iterators
            if name not in extents
            if (largest := _largest_extent(name, extents, forms)) is not None
        }
        if not bound:
            return extents, None
        extents |= bound


def _largest_extent(
    name: str, extents: Mapping[str, int], forms: Iterable[tuple[Affine, int]]
) -> int | None:
    """The largest extent of an iterator that keeps indices inside their dimensions.

    `forms` are indices with the extents of their dimensions. Those count in which the
    iterator has a positive coefficient and the other iterators' extents are known. None
    if there are none.
    """
    iterator = Var(name)
    largest = []
    for form, extent in forms:
        others = Affine({a: step for a, step in form.terms.items() if a != iterator}, form.constant)
        if form.coefficient(name) <= 0 or not others.is_linear:
            continue
        if others.coefficients.keys() <= extents.keys():
            rest = value_range(others.index, extents).high
            largest.append((extent - 1 - rest) // form.coefficient(name) + 1)
    return min(largest, default=None)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What an index is computed from, in whichever order the terms of its sums are added."""

    values: Interval  # of the scalar, and of every part of a sum
    largest: int  # absolute value of a number in its computation
    is_real: bool = False  # whether the scalar is of a float dtype


def _size_of_arithmetic(
    node: Scalar, extents: Mapping[str, int], dtypes: Mapping[str, DType]
) -> int:
    """An upper bound of the size of every number in the computation of an index.

    It holds in whichever order the terms of a sum are added. A side of a conditional counts
    where it is chosen.
    """
    return _sizes(node, Domain(extents=extents, dtypes=dtypes)).largest


def _sizes(node: Scalar, domain: Domain) -> _Sizes:
    if isinstance(node, Select):
        condition = _sizes(node.cond, domain)
        then = _sizes(node.then, domain.under(node.cond))
        other = _sizes(node.other, domain.under(Unary("not", node.cond)))
        largest = max(condition.largest, then.largest, other.largest)
        return _Sizes(then.values.union(other.values), largest, then.is_real)
    parts = [_sizes(child, domain) for child in children(node)]
    # Taken from below: asked anew at each node, a long sum would take quadratic time.
    is_real = any(part.is_real for part in parts)
    match node:
        case Var(name=name):
            values = Interval(0, domain.extents[name])
        case Const(value=int(number), dtype=dtype):
            values = Interval(int(number), int(number))
            is_real = dtype not in INTERVALS
        case Read(tensor=tensor):  # its own indices are checked by themselves
            # The least number of a type counts as the next: clamped indices stay simple.
            values, parts = domain.range_of(node).narrowed(*_symmetric(domain.dtypes[tensor])), []
            is_real = domain.dtypes[tensor] not in INTERVALS
        case Cast(dtype=dtype) | Bitcast(dtype=dtype) if is_real:
            values, parts = ANY.narrowed(*_symmetric(dtype)), []  # real numbers do not wrap
            is_real = dtype not in INTERVALS
        case Binary(op=op) if is_real:
            is_real = not BINARY_OPERATORS[op].is_comparison
            values, parts = ANY if is_real else BOOL, []
        case Binary(op="mul"):
            values = parts[0].values * parts[1].values
        case Binary(op="add"):
            values = parts[0].values.union(_ZERO) + parts[1].values.union(_ZERO)
        case Binary(op="sub"):
            values = parts[0].values.union(_ZERO) - parts[1].values.union(_ZERO)
        case _:
            bound = max((part.values.magnitude for part in parts), default=0)
            values = domain.range_of(node).narrowed(-bound, bound)
            if isinstance(node, Const | Cast | Bitcast):
                is_real = node.dtype not in INTERVALS
    return _Sizes(values, max([values.magnitude, *(part.largest for part in parts)]), is_real)


def _symmetric(dtype: DType | ByteFloat) -> tuple[int, int]:
    """The greatest number of a type with either sign, within 64 bits."""
    greatest = min(INTERVALS.get(dtype, ANY).high, ANY.high)
    return -greatest, greatest


def read_error(
    read: Read,
    extents: Mapping[str, int],
    tensors: Mapping[str, Tensor],
    conditions: Iterable[Scalar] = (),
) -> str | None:
    """Why a read is refused; None if it is sound where the conditions hold.

    Refused are unpadded indices that may leave their dimension, index arithmetic that may
    wrap around, and padding that the tensor's dtype cannot hold.
    """
    dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
    tensor = tensors[read.tensor]
    if read.pad is not None and tensor.dtype in INTEGER_RANGES:
        low, high = INTEGER_RANGES[tensor.dtype]
        if not low <= read.pad.value <= high:
            return (
                f"outside of {tensor.name} lies {read.pad.value}, which {tensor.dtype} cannot "
                f"hold; it holds {low} to {high}"
            )
    domain = Domain(extents=extents, dtypes=dtypes)
    # Reads of bool cannot be padded, as those are that only a condition keeps inside.
    if tensor.dtype != "bool" and not is_inside(read, tensor.shape, extents, dtypes):
        domain = reduce(Domain.under, conditions, domain)
    for dimension, (index, extent) in enumerate(zip(read.indices, tensor.shape, strict=True)):
        values = domain.range_of(index)
        gathers = any(True for _ in reads(index))
        limit = 2**63 if gathers else _INDEX_LIMIT
        if _size_of_arithmetic(index, extents, dtypes) >= limit:
            return (
                f"index {dimension} of {tensor.name} is computed from numbers of {limit} or "
                f"more; use smaller factors"
            )
        if read.pad is None and not values.is_index_of(extent):
            way = (
                f"clamp it, clamp(…, 0, {extent - 1})"
                if gathers
                else "state a smaller range with 'for'"
            )
            return (
                f"index {dimension} of {tensor.name} runs from {values.low} to {values.high}, "
                f"its extent is {extent}; {way}, "
                f"or say what lies outside: {tensor.name}[…] else 0"
            )
    return None


def with_conditional_padding(
    node: Scalar, extents: Mapping[str, int], tensors: Mapping[str, Tensor]
) -> Scalar:
    """The same scalar with padding for reads that only conditions keep inside.

    The padding is never read. It lets kernels read without knowing the conditions, for
    instance when they copy a tile.
    """
    dtypes = {name: tensor.dtype for name, tensor in tensors.items()}

    def change(node: Scalar) -> Scalar | None:
        if not isinstance(node, Read) or node.pad is not None:
            return None
        tensor = tensors[node.tensor]
        inside = is_inside(node, tensor.shape, extents, dtypes)
        indices = tuple(rewrite(index, change) for index in node.indices)
        return Read(node.tensor, indices, None if inside else identity("sum", tensor.dtype))

    return rewrite(node, change)


def without_redundant_padding(
    node: Scalar, extents: Mapping[str, int], tensors: Mapping[str, Tensor]
) -> Scalar:
    """The same scalar without the padding of reads that never leave their tensor."""
    dtypes = {name: tensor.dtype for name, tensor in tensors.items()}

    def change(node: Scalar) -> Scalar | None:
        if not isinstance(node, Read) or node.pad is None:
            return None
        inside = is_inside(node, tensors[node.tensor].shape, extents, dtypes)
        return Read(
            node.tensor,
            tuple(rewrite(index, change) for index in node.indices),
            None if inside else node.pad,
        )

    return rewrite(node, change)


def overflow_error(body: Scalar, extents: Mapping[str, int]) -> str | None:
    """Why arithmetic on iterators is refused; None if it cannot wrap around.

    Kernels compute it in 32 bits, and narrower integers may not hold its values.
    """
    largest: list[Scalar] = []
    if _note_iterator_arithmetic(body, largest) and _has_iterators(body):
        largest.append(body)
    errors = (_overflow_of_arithmetic(node, extents) for node in largest)
    return next((error for error in errors if error), None)


def _overflow_of_arithmetic(node: Scalar, extents: Mapping[str, int]) -> str | None:
    if _size_of_arithmetic(node, extents, {}) >= _INDEX_LIMIT:
        return (
            f"numbers of {_INDEX_LIMIT} or more are computed from iterators; use smaller "
            f"factors, or convert to f32 first"
        )
    for part in walk(node):
        if isinstance(part, Cast):
            values, limits = value_range(part.arg, extents), INTERVALS[part.dtype]
            if not values.is_within(limits):
                return (
                    f"{part.dtype} holds {limits.low} to {limits.high}, but an iterator's value "
                    f"is {values.low} to {values.high}; use a wider one"
                )
    return None


def _note_iterator_arithmetic(node: Scalar, largest: list[Scalar]) -> bool:
    """Whether the node is integer arithmetic on iterators and constants alone.

    Where it is not, its parts that are, and have iterators, are added to `largest`.
    Arithmetic of uint32 and uint64 may wrap around, and counts as something else.
    """
    parts = children(node)
    pure = [part for part in parts if _note_iterator_arithmetic(part, largest)]
    is_arithmetic = isinstance(node, Var | Binary | Unary) or (
        isinstance(node, Const | Cast) and node.dtype in INTERVALS and node.dtype not in UNSIGNED
    )
    if is_arithmetic and len(pure) == len(parts):
        return True
    largest += [part for part in pure if _has_iterators(part)]
    return False


def _has_iterators(node: Scalar) -> bool:
    return any(isinstance(part, Var) for part in walk(node))


def check_bounds(expression: Expression) -> None:
    """Check every read of an expression, and arithmetic on its iterators.

    Raises `WorkloadError` for the first read that could leave its tensor, and for
    arithmetic that could wrap around.
    """
    tensors = {tensor.name: tensor for tensor in expression.inputs}
    for stage in expression.stages:
        extents = stage.extents
        for read in reads(stage.body):
            if error := read_error(read, extents, tensors):
                raise WorkloadError(f"stage {stage.name}: {error}")
        if error := overflow_error(stage.body, extents):
            raise WorkloadError(f"stage {stage.name}: {error}")
        tensors[stage.name] = stage.tensor

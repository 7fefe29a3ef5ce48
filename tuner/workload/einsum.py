"""Products of tensors in Einstein's notation, as workloads on operands as they lie in memory.

An operand without gaps is declared in the order of its strides, so a transposed one is read
where it is, and the strides are part of the workload's key. A dimension that is repeated by a
stride of 0, or has the extent 1, is no dimension of the stored operand.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.errors import UsageError
from tuner.workload.spec import workload_from_notation
from tuner.workload.workload import Workload

# Dtypes of operands that have kernels, as the notation writes them.
DTYPES: Mapping[str, str] = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
}  # fmt: skip
_ELLIPSIS = "..."
_MOST_OPERANDS = 2  # of one kernel
_MOST_EXACT = 4  # operands whose order of products is searched exhaustively
Labels = tuple[str, ...]


@dataclass(frozen=True)
class Operand:
    """A tensor as it lies in memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: str


@dataclass(frozen=True)
class Product:
    """What an einsum of some operands computes."""

    operands: tuple[Labels, ...]  # a label for each dimension
    output: Labels
    extents: Mapping[str, int]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the output."""
        return tuple(self.extents[label] for label in self.output)


@dataclass(frozen=True)
class Contraction:
    """A product of one or two operands as a workload."""

    workload: Workload
    # Of each operand the dimensions that are stored, the one with the greatest stride first.
    stored: tuple[tuple[int, ...], ...]
    # Of the output, which is row-major. That of a workload has one dimension at least.
    shape: tuple[int, ...]


def product_of(subscripts: str, shapes: Sequence[Sequence[int]]) -> Product:
    """The product that the subscripts say, by NumPy's rules, `...` and implicit output included.

    Raises UsageError naming the subscripts and what is wrong.
    """
    given, arrow, result = subscripts.replace(" ", "").partition("->")
    parts = given.split(",")
    if len(parts) != len(shapes):
        raise _error(subscripts, f"it has {len(parts)} operands, and {len(shapes)} are given")
    ranks = [len(shape) for shape in shapes]
    most = max(rank - _named(part) for part, rank in zip(parts, ranks, strict=True))
    operands = tuple(
        _labels(subscripts, part, rank, most) for part, rank in zip(parts, ranks, strict=True)
    )
    counts = Counter(label for labels in operands for label in labels)
    if arrow:
        output = _labels(subscripts, result, _named(result) + most * (_ELLIPSIS in result), most)
        missing = [label for label in output if label not in counts]
        if missing or len(set(output)) < len(output):
            raise _error(subscripts, "its output has a label twice, or one of no operand")
    else:
        free = sorted(label for label, count in counts.items() if count == 1 and label.isalpha())
        output = (*_spread(most, most), *free)
    return Product(operands, output, _extents(subscripts, operands, shapes))


def step_of(operands: Sequence[Labels], output: Labels, shapes: Sequence[Sequence[int]]) -> Product:
    """The product of some operands with known labels."""
    return Product(tuple(operands), output, _extents("", operands, shapes))


def _error(subscripts: str, message: str) -> UsageError:
    return UsageError(f"einsum {subscripts!r}: {message}")


def _named(part: str) -> int:
    return len(part.replace(_ELLIPSIS, ""))


def _spread(count: int, most: int) -> Labels:
    """Labels of the last `count` of `most` dimensions that `...` stands for."""
    return tuple(str(number) for number in range(most - count, most))


def _labels(subscripts: str, part: str, rank: int, most: int) -> Labels:
    before, ellipsis, after = part.partition(_ELLIPSIS)
    rest = rank - _named(part)
    wrong = sorted(set(before + after) - set(string.ascii_letters))
    if wrong:
        raise _error(subscripts, f"{wrong[0]!r} is no letter")
    if rest < 0 or (rest and not ellipsis):
        raise _error(subscripts, f"{part!r} has {_named(part)} labels for {rank} dimensions")
    return (*before, *_spread(rest, most), *after)


def _extents(
    subscripts: str, operands: Sequence[Labels], shapes: Sequence[Sequence[int]]
) -> dict[str, int]:
    extents: dict[str, int] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        for label, extent in zip(labels, shape, strict=True):
            earlier = extents.setdefault(label, extent)
            if 1 not in (earlier, extent) and earlier != extent:
                raise _error(subscripts, f"{label!r} has the extents {earlier} and {extent}")
            extents[label] = extent if earlier == 1 else earlier
    return extents


def sublists(product: Product) -> tuple[list[list[int]], list[int]]:
    """The labels of operands and output as numbers, as libraries take them in lists."""
    numbers = {label: number for number, label in enumerate(product.extents)}
    operands = [[numbers[label] for label in labels] for labels in product.operands]
    return operands, [numbers[label] for label in product.output]


def pairs(product: Product) -> list[tuple[tuple[int, ...], Labels]]:
    """The product as products of at most two operands, one after the other.

    Each takes the operands at these places away, and puts a result with these labels at the
    end.
    """
    if len(product.operands) <= _MOST_OPERANDS:
        return [(tuple(range(len(product.operands))), product.output)]
    letters = dict(zip(product.extents, string.ascii_letters, strict=False))
    written = ",".join("".join(letters[label] for label in part) for part in product.operands)
    result = "".join(letters[label] for label in product.output)
    shapes = [tuple(product.extents[label] for label in part) for part in product.operands]
    way = "optimal" if len(shapes) <= _MOST_EXACT else "greedy"
    path = np.einsum_path(
        f"{written}->{result}", *(np.broadcast_to(0.0, shape) for shape in shapes), optimize=way
    )[0][1:]
    left, steps = list(product.operands), []
    for chosen in path:
        for places in _in_pairs(chosen, len(left)):
            taken_away = [left[place] for place in places]
            left = [labels for place, labels in enumerate(left) if place not in places]
            used = set(product.output).union(*left)
            labels = dict.fromkeys(label for part in taken_away for label in part)
            result_labels = tuple(label for label in labels if label in used)
            steps.append((places, product.output if not left else result_labels))
            left.append(steps[-1][1])
    return steps


def _in_pairs(places: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Products of two for one of several operands among so many."""
    first, *others = sorted(places, reverse=True)
    if len(others) <= 1:
        return [tuple(sorted(places))]
    # The result of each lies at the end, where the next one takes it.
    return [
        (others[0], first),
        *((other, count - 2 - turns) for turns, other in enumerate(others[1:])),
    ]


def contraction_of(product: Product, operands: Sequence[Operand]) -> Contraction | None:
    """The workload of a product of one or two operands.

    None where it has none: other dtypes, no elements, operands with gaps in memory or
    without any dimension, a workload beyond the budgets.
    """
    kind = operands[0].dtype
    if any(operand.dtype != kind for operand in operands) or kind not in DTYPES:
        return None
    if 0 in product.extents.values():
        return None
    stored = [_stored(operand) for operand in operands]
    if any(not axes for axes in stored):
        return None
    orders = tuple(axes for axes in stored if axes is not None)
    text = _text(product, operands, orders, DTYPES[kind])
    try:
        return Contraction(workload_from_notation(text, {}), orders, product.shape)
    except UsageError:
        return None


def _stored(operand: Operand) -> tuple[int, ...] | None:
    """The dimensions that are stored, in their order in memory; None where there are gaps."""
    axes = [
        axis
        for axis, (extent, stride) in enumerate(zip(operand.shape, operand.strides, strict=True))
        if extent != 1 and stride != 0
    ]
    order = tuple(sorted(axes, key=lambda axis: (-operand.strides[axis], axis)))
    following = 1
    for axis in reversed(order):
        if operand.strides[axis] != following:
            return None
        following *= operand.shape[axis]
    return order


def _text(
    product: Product,
    operands: Sequence[Operand],
    orders: Sequence[Sequence[int]],
    dtype: str,
) -> str:
    names = {label: f"i{number}" for number, label in enumerate(product.extents)}
    declared, read = [], []
    indexed: set[str] = set()
    for number, (labels, operand, order) in enumerate(
        zip(product.operands, operands, orders, strict=True)
    ):
        shape = ", ".join(str(operand.shape[axis]) for axis in order)
        index = ", ".join(names[labels[axis]] for axis in order)
        indexed.update(labels[axis] for axis in order)
        declared.append(f"A{number}: {dtype}[{shape}]")
        read.append(f"A{number}[{index}]")
    output = ", ".join(names[label] for label in product.output) or "z"
    shape = ", ".join(map(str, product.shape)) or "1"
    ranges = [
        f"{names[label]} in 0:{extent}"
        for label, extent in product.extents.items()
        if label not in indexed
    ]
    ranges += [] if product.output else ["z in 0:1"]
    sums = set(product.extents) - set(product.output)
    assign = "+=" if sums else "="
    stated = f" for {', '.join(ranges)}" if ranges else ""
    return (
        f"kernel einsum({', '.join(declared)}) -> (C: {dtype}[{shape}]) {{\n"
        f"  C[{output}] {assign} {' * '.join(read)}{stated}\n}}\n"
    )

"""Access maps: how the reads of a stage move through memory with each of its axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.workload.affine import Affine, linear, value_range
from tuner.workload.expression import (
    Binary,
    Const,
    Read,
    Scalar,
    Select,
    Stage,
    Var,
    reads,
    rewrite,
    walk,
)


def in_bounds_condition(
    indices: tuple[Scalar, ...], shape: tuple[int, ...], extents: Mapping[str, int]
) -> Scalar | None:
    """The condition under which all indices are inside the shape; None if it always holds.

    Nothing is assumed of an index that is read from a tensor, clamped or not: where it
    is not needed it is not read either.
    """
    condition: Scalar | None = None
    for index, extent in zip(indices, shape, strict=True):
        values, gathered = value_range(index, extents), any(reads(index))
        tests = []
        if gathered or values.low < 0:
            tests.append(Binary("ge", index, Const(0, "int64")))
        if gathered or values.high >= extent:
            tests.append(Binary("lt", index, Const(extent, "int64")))
        for test in tests:
            condition = test if condition is None else Binary("and", condition, test)
    return condition


def with_explicit_padding(
    node: Scalar, shapes: Mapping[str, tuple[int, ...]], extents: Mapping[str, int]
) -> Scalar:
    """The tree without padded reads.

    A read that may leave its tensor becomes a selection, any other a plain read.
    """

    def change(node: Scalar) -> Scalar | None:
        if not (isinstance(node, Read) and node.pad is not None):
            return None
        indices = tuple(rewrite(index, change) for index in node.indices)
        inside = in_bounds_condition(indices, shapes[node.tensor], extents)
        plain = Read(node.tensor, indices)
        return plain if inside is None else Select(inside, plain, node.pad)

    return rewrite(node, change)


@dataclass(frozen=True, slots=True)
class Access:
    """How one read of a stage moves through memory."""

    read: Read
    axes: frozenset[str]  # iterators on which its indices depend
    # elements moved per step of each iterator; None if an index is not linear
    strides: Mapping[str, int] | None
    padded: bool  # may leave the tensor (before padding is made explicit)
    gathered: bool  # an index is itself read from a tensor

    def stride(self, axis: str) -> int | None:
        """Elements moved by one step of the axis; None if that is not constant."""
        if axis not in self.axes:
            return 0
        return None if self.strides is None else self.strides.get(axis, 0)

    def stride_within(self, axis: str, shape: Sequence[int]) -> int | None:
        """As `stride`, also where other axes choose by an index that is read from a tensor:
        the elements moved within what is gathered. `shape` is that of the tensor."""
        if not self.gathered:
            return self.stride(axis)
        total, step = 0, 1
        for index, extent in zip(reversed(self.read.indices), reversed(shape), strict=True):
            form = linear(index)
            if form is not None:
                total += form.coefficient(axis) * step
            elif any(isinstance(node, Var) and node.name == axis for node in walk(index)):
                return None
            step *= extent
        return total

    def divides(self, axis: str) -> bool:
        """Whether different values of the axis read different parts of the tensor.

        The axis then is the only iterator of one index, with coefficient 1.
        """
        forms = [linear(index) for index in self.read.indices]
        moved = [form for form in forms if form is None or form.coefficient(axis)]
        return len(moved) == 1 and moved[0] is not None and moved[0].coefficients == {axis: 1}


def accesses(stage: Stage, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Access, ...]:
    """The distinct reads of a stage, in order of appearance."""
    extents = stage.extents
    return tuple(
        access(read, shapes[read.tensor], extents) for read in dict.fromkeys(reads(stage.body))
    )


def access(read: Read, shape: tuple[int, ...], extents: Mapping[str, int]) -> Access:
    """How a read moves through a tensor of this shape."""
    axes = frozenset(
        part.name for index in read.indices for part in walk(index) if isinstance(part, Var)
    )
    gathered = any(isinstance(part, Read) for index in read.indices for part in walk(index))
    walked = _merged_dimensions(read.indices, shape)
    strides: dict[str, int] = {}
    step = 1
    for form, extent in reversed(walked):
        for name, value in form.coefficients.items() if form is not None else ():
            strides[name] = strides.get(name, 0) + value * step
        step *= extent
    padded = read.pad is not None and in_bounds_condition(read.indices, shape, extents) is not None
    return Access(
        read, axes, None if any(form is None for form, _ in walked) else strides, padded, gathered
    )


def _merged_dimensions(
    indices: Sequence[Scalar], shape: Sequence[int]
) -> list[tuple[Affine | None, int]]:
    """Index and extent of each dimension; one for two that `i // n` and `i % n` walk."""
    dimensions: list[tuple[Affine | None, int]] = []
    before: Scalar | None = None
    for index, extent in zip(indices, shape, strict=True):
        match before, index:
            case Binary(op="floordiv", lhs=whole, rhs=Const(value=by)), Binary(
                op="floormod", lhs=same, rhs=Const(value=also)
            ) if whole == same and by == also == extent:
                _, blocks = dimensions.pop()
                dimensions.append((linear(whole), blocks * extent))
            case _:
                dimensions.append((linear(index), extent))
        before = index
    return dimensions

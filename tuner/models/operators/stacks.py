"""Sequences of tensors: values, and stacks of values of one shape."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.models.operators.extents import count, counted, scalar, whole
from tuner.models.operators.movement import flip, reshape, transpose
from tuner.models.operators.scalars import Elem, constant
from tuner.models.operators.selection import compress
from tuner.models.operators.values import Value


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Tensors of one shape, the entries of the first dimension of another, which may have a
    count; no other of its dimensions has."""

    tensors: Value


Items = tuple[Value | Stack, ...]  # a sequence


def side_by_side(stack: Stack, axis: int) -> Value:
    """The tensors one behind the other along an axis of theirs."""
    tensors = stack.tensors
    shape = [*tensors.shape[1:]]
    extent = shape[axis]
    shape[axis] *= tensors.shape[0]
    joined = reshape(transpose(whole(tensors), _moved(tensors.rank, axis)), shape)
    if not tensors.counts:
        return joined
    total = count(joined, scalar(tensors.counts[0]) * extent)
    return counted(joined, {axis: total})


def first_of_each(stack: Stack, extents: Value, axis: int, *, backward: bool) -> Value:
    """The first elements of each tensor along an axis of theirs, one behind the other: of each
    as many as its number in `extents` says. If `backward` the last tensor comes first."""
    number = stack.tensors.counts.get(0)
    tensors, lengths = whole(stack.tensors), whole(extents)
    if backward:
        tensors, lengths = flip(tensors, 0), flip(lengths, 0)
    each = tensors.shape[1 + axis]

    def is_there(place: Elem) -> Elem:
        which = place // each
        is_inside = place % each < lengths[which]
        if number is None:
            return is_inside
        first = constant(tensors.shape[0] - 1, "int64")
        return is_inside & ((first - which if backward else which) < scalar(number))

    places = tensors.shape[0] * each
    flags = tensors.builder.compute("there", (places,), is_there, dtype="bool")
    return compress(side_by_side(Stack(tensors), axis), flags, axis)


def along_new(stack: Stack, axis: int) -> Value:
    """The tensors along a new axis."""
    tensors = stack.tensors
    moved = transpose(whole(tensors), _moved(tensors.rank, axis))
    return counted(moved, {axis: tensors.counts[0]}) if tensors.counts else moved


def _moved(rank: int, axis: int) -> list[int]:
    """The order of dimensions in which the first lies in front of an axis of the others."""
    return [*range(1, axis + 1), 0, *range(axis + 1, rank)]

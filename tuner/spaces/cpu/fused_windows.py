"""Copies of what a tile reads of a tensor: padding made real, or lanes laid side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.spaces.cpu.fused_layout import last_dimension
from tuner.spaces.program.loop_tree import Loop, LoopKind, Statement, Store, When
from tuner.spaces.program.tiles import add, at_most, constant, times
from tuner.spaces.rewrite.regions import Window
from tuner.workload.affine import Affine, affine
from tuner.workload.expression import Axis, Binary, Read, Scalar, Var

LANE, TILE = "_lane", "_tile"  # iterators of vectors along the last dimension


def window_order(window: Window, vector: Axis) -> tuple[int, ...]:
    """The tensor's dimensions as the copy has them: that of its reader's vectors last."""
    last = last_dimension(next(iter(window.reads)), vector.name)
    others = (place for place in range(len(window.region.extents)) if place != last)
    return (*others, last)


class WindowCopy:
    """The statements that fill one window.

    `order` are its dimensions, `leaves` says of each of the tensor's whether the window may
    be beyond it. `read_at` reads the tensor at a place, `scalar` makes an index of a form.
    """

    def __init__(
        self,
        window: Window,
        buffer: str,
        order: tuple[int, ...],
        *,
        shape: Sequence[int],
        leaves: Sequence[bool],
        lanes: int,
        read_at: Callable[[tuple[Affine, ...]], Read],
        scalar: Callable[[Affine], Scalar],
    ) -> None:
        self.window, self.buffer, self.order = window, buffer, order
        self.shape, self.leaves, self.lanes = shape, leaves, lanes
        self.read_at, self.scalar = read_at, scalar
        self.extents = window.region.extents
        while self.lanes > self.extents[order[-1]]:
            self.lanes //= 2

    def statements(self, *, turns: bool) -> list[Statement]:
        """The loops; `turns` allows transposing in registers."""
        last = self.order[-1]
        if self.window.pad is not None:
            return [self._outside_last(self._padded_row())]
        contiguous = len(self.order) - 1
        if turns and last != contiguous and self.extents[contiguous] >= self.lanes >= 4:
            return [self._transposed(contiguous)]
        return [self._outside_last((self._vectors(self._copied),))]

    def _outside_last(self, body: tuple[Statement, ...]) -> Statement:
        """Loops over all dimensions but the last."""
        for place in reversed(self.order[:-1]):
            body = (Loop(iterator=_name(place), extent=self.extents[place], body=body),)
        return body[0] if len(body) == 1 else Loop(iterator="_once", extent=1, body=body)

    def _padded_row(self) -> tuple[Statement, ...]:
        """The padding, and over it what is inside of the tensor."""
        pad, last = self.window.pad, self.order[-1]
        assert pad is not None
        filled = self._vectors(
            lambda indices: Store(buffer=self.buffer, indices=indices, value=pad)
        )
        if self.leaves[last]:
            start = self.window.region.starts[last]
            below = Binary("max", self.scalar(start.scaled(-1)), constant(0))
            left = self.scalar(Affine({}, self.shape[last]) - start)
            end = Binary("max", at_most(left, self.extents[last]), constant(0))
            place = tuple(Var(_name(dimension)) for dimension in self.order)
            inside: Statement = Loop(
                iterator=_name(last),
                extent=self.extents[last],
                first=below,
                end=end,
                body=(self._copied(place),),
            )
        else:
            inside = self._vectors(self._copied)
        condition: Scalar | None = None
        for place_outside in self.order[:-1]:
            if not self.leaves[place_outside]:
                continue
            index = self.scalar(self._global(place_outside, Var(_name(place_outside))))
            limit = constant(self.shape[place_outside])
            within = Binary("and", Binary("ge", index, constant(0)), Binary("lt", index, limit))
            condition = within if condition is None else Binary("and", condition, within)
        if condition is not None:
            inside = When(condition=condition, body=(inside,))
        return filled, inside

    def _vectors(self, body: Callable[[tuple[Scalar, ...]], Statement]) -> Statement:
        """A statement for all elements of the last dimension; the last vector may overlap."""
        extent = self.extents[self.order[-1]]
        first: Scalar = times(Var(TILE), self.lanes)
        if extent % self.lanes:
            first = at_most(first, extent - self.lanes)
        outer = tuple(Var(_name(place)) for place in self.order[:-1])
        inner = Loop(
            iterator=LANE,
            extent=self.lanes,
            kind=LoopKind.VECTOR,
            body=(body((*outer, add(first, Var(LANE)))),),
        )
        return Loop(iterator=TILE, extent=-(-extent // self.lanes), body=(inner,))

    def _copied(self, indices: tuple[Scalar, ...]) -> Store:
        place = dict(zip(self.order, indices, strict=True))
        where = tuple(
            self._global(dimension, place[dimension]) for dimension in range(len(indices))
        )
        return Store(buffer=self.buffer, indices=indices, value=self.read_at(where))

    def _transposed(self, contiguous: int) -> Statement:
        """Squares of lanes, read along one dimension and written along the other."""
        extent = self.extents[self.order[-1]]
        first: Scalar = times(Var(TILE), self.lanes)
        if extent % self.lanes:
            first = at_most(first, extent - self.lanes)
        outer = tuple(Var(_name(place)) for place in self.order[:-1])
        lanes = Loop(
            iterator=LANE, extent=self.lanes, body=(self._copied((*outer, add(first, Var(LANE)))),)
        )
        turned = Loop(
            iterator=_name(contiguous),
            extent=self.extents[contiguous],
            body=(lanes,),
            transposed=self.lanes,
        )
        body: Statement = Loop(iterator=TILE, extent=-(-extent // self.lanes), body=(turned,))
        for place in reversed(self.order[:-1]):
            if place != contiguous:
                body = Loop(iterator=_name(place), extent=self.extents[place], body=(body,))
        return body

    def _global(self, dimension: int, within: Scalar) -> Affine:
        """An index of the tensor, so far within the window."""
        return self.window.region.starts[dimension] + affine(within)


def _name(dimension: int) -> str:
    """The iterator over a dimension of the window; no axis has its name."""
    return f"_place{dimension}"

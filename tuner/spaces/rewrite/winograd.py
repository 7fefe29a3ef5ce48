"""Winograd's convolutions F(m, r): tiles of m outputs with fewer multiplications.

Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks" (2016), section 4. In
each direction a tile of m outputs is computed from m + r - 1 inputs with as many
multiplications, instead of m * r; in two directions both numbers are squared. The
matrices are derived in `cook_toom`. One stage is rewritten into four: transformed
weights, transformed inputs, their products summed over channels (a matrix product for
each place within a tile), and transformed outputs. Each has sketches like any other
stage. Which axes are rows and columns follows from the indices. Rounding errors grow
with the tile, so the algorithm is for `numerics=fast`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod

from tuner.spaces.program.tiles import add, constant, times
from tuner.spaces.rewrite.convolution_window import ConvolutionWindow, convolution_window
from tuner.spaces.rewrite.cook_toom import Group, Transform
from tuner.spaces.rewrite.stages import fresh_name, renamed, tensor_names
from tuner.spaces.rewrite.winograd_tile import TILES, WinogradTile
from tuner.workload.expression import (
    Axis,
    Binary,
    Const,
    Expression,
    Read,
    Scalar,
    Select,
    Stage,
    Var,
    substitute,
)


def winograd_tiles(
    expression: Expression, offered: Sequence[WinogradTile] = TILES
) -> tuple[WinogradTile, ...]:
    """The offered tiles that save multiplications of the expression's first convolution.

    None of them without one.
    """
    window = _first_window(expression, offered)
    return () if window is None else window.tiles(offered)


def winograd(
    expression: Expression, tile: WinogradTile, *, joins_tiles: bool = False
) -> Expression:
    """The expression with its first convolution of the tile's window rewritten.

    The tile is one of `winograd_tiles`. Stages get new names. `joins_tiles` numbers the
    tiles of all images of a batch along one axis. The products then are plain matrix
    products, whose register tiles may span images.
    """
    window = _first_window(expression, (tile,))
    assert window is not None
    parts = _Rewriting(
        window=window, tile=tile, reserved=tensor_names(expression), joins_tiles=joins_tiles
    ).stages
    stages = tuple(
        replacement
        for stage in expression.stages
        for replacement in (parts if stage is window.original else (stage,))
    )
    return renamed(replace(expression, stages=stages), tile.suffix)


def _first_window(
    expression: Expression, offered: Sequence[WinogradTile]
) -> ConvolutionWindow | None:
    for stage in expression.stages:
        window = convolution_window(stage)
        if window is not None and window.tiles(offered):
            return window
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _TileNumbering:
    """How tiles are numbered: by separate axes, or by several joined to one."""

    together: tuple[Axis, ...]  # joined axes, the last one fastest; empty if all are separate
    number: Axis  # the joined axis, in the place of the last of them

    def axes(self, axes: Sequence[Axis]) -> tuple[Axis, ...]:
        kept = [axis for axis in axes if axis not in self.together[:-1]]
        return tuple(self.number if axis in self.together else axis for axis in kept)

    @property
    def parts(self) -> dict[str, Scalar]:
        """Each joined axis as an expression of the number."""
        values: dict[str, Scalar] = {}
        step = 1
        for axis in reversed(self.together):
            value: Scalar = (
                Var(self.number.name)
                if step == 1
                else Binary("floordiv", Var(self.number.name), constant(step))
            )
            step *= axis.extent
            values[axis.name] = (
                value
                if axis == self.together[0]
                else Binary("floormod", value, constant(axis.extent))
            )
        return values

    def indices(self, values: Sequence[tuple[Axis, Scalar]]) -> tuple[Scalar, ...]:
        """Indices of a tensor with the axes `axes(...)`, from the index of each axis."""
        by_name = {axis.name: value for axis, value in values}
        total: Scalar = constant(0)
        for axis in self.together:
            total = add(
                times(total, axis.extent) if total != constant(0) else total, by_name[axis.name]
            )
        return tuple(
            total if axis == self.number else by_name[axis.name]
            for axis in self.axes([axis for axis, _ in values])
        )


@dataclass(frozen=True, kw_only=True)
class _Rewriting:
    """A convolution's four stages under one tile.

    u and v are the transformed weights and inputs, m their products, y the outputs.
    """

    window: ConvolutionWindow
    tile: WinogradTile
    reserved: Collection[str]  # names of the expression's tensors
    joins_tiles: bool

    @property
    def stages(self) -> tuple[Stage, ...]:
        """u, v, m and y."""
        weights = (*self._inside, *self._weight_axes)
        data = self._with_places(self._tiles.axes(self._data_axes), self._is_channel)
        u = self._map(self._names["u"], weights, self._u)
        v = self._map(self._names["v"], data, substitute(self._v, self._tiles.parts))
        product = Binary(
            "mul",
            Read(self._names["v"], tuple(Var(axis.name) for axis in data)),
            Read(self._names["u"], tuple(Var(axis.name) for axis in weights)),
        )
        m = replace(
            self.window.original,
            name=self._names["m"],
            axes=self._with_places(self._tiles.axes(self._product_axes), self._is_filter),
            reduce_axes=self._channels,
            body=product,
        )
        y = replace(self.window.original, reduce_axes=(), reducer=None, body=self._y)
        return u, v, m, y

    def _map(self, name: str, axes: Sequence[Axis], body: Scalar) -> Stage:
        return replace(
            self.window.original,
            name=name,
            axes=tuple(axes),
            reduce_axes=(),
            reducer=None,
            body=body,
        )

    # --- axes

    @cached_property
    def _extents(self) -> Mapping[str, int]:
        """Of every axis. Along the sides there are tiles in place of outputs."""
        tiles = {
            side.axis.name: -(-side.axis.extent // self.tile.outputs) for side in self.window.sides
        }
        return self.window.stage.extents | tiles

    @cached_property
    def _names(self) -> Mapping[str, str]:
        name = self.window.stage.name
        return {part: fresh_name(f"{name}{part}", self.reserved) for part in ("u", "v", "m")}

    @cached_property
    def _inside(self) -> tuple[Axis, ...]:
        """The place within a tile, an axis for each side."""
        return tuple(
            Axis(name=fresh_name(f"{side.step.name}q", self._extents), extent=self.tile.inputs)
            for side in self.window.sides
        )

    @cached_property
    def _channels(self) -> tuple[Axis, ...]:
        """What is summed beside the window."""
        steps = {side.step.name for side in self.window.sides}
        return tuple(axis for axis in self.window.stage.reduce_axes if axis.name not in steps)

    @cached_property
    def _weight_axes(self) -> tuple[Axis, ...]:
        steps = {side.step.name for side in self.window.sides}
        names = (index.name for index in self.window.weights.indices if isinstance(index, Var))
        axes = [self._axis(name) for name in names if name not in steps]
        if self.tile.is_first:
            return tuple(axes)
        return tuple(sorted(axes, key=self._is_filter))

    def _with_places(
        self, axes: Sequence[Axis], is_last: Callable[[Axis], bool]
    ) -> tuple[Axis, ...]:
        """The axes with those of the places within a tile, before the last ones.

        A tile's data then lies side by side. With the places first, those of a tile would
        be apart by all tiles, often by a power of two, and share few sets of the caches.
        """
        if self.tile.is_first:
            return (*self._inside, *axes)
        return (
            *(axis for axis in axes if not is_last(axis)),
            *self._inside,
            *(axis for axis in axes if is_last(axis)),
        )

    def _is_channel(self, axis: Axis) -> bool:
        """Whether it is summed beside the window."""
        return axis in self._channels

    def _is_filter(self, axis: Axis) -> bool:
        """Whether it is an axis of the weights and of the outputs, but not of the data."""
        return axis not in self._channels and axis not in self._moving

    @cached_property
    def _moving(self) -> tuple[Axis, ...]:
        """Axes of the data in the order of its dimensions, tiles in place of the sides'."""
        sides = {side.dimension: side.axis.name for side in self.window.sides}
        return tuple(
            self._axis(sides.get(dimension, getattr(index, "name", "")))
            for dimension, index in enumerate(self.window.data.indices)
        )

    @cached_property
    def _data_axes(self) -> tuple[Axis, ...]:
        """Channels come last, so that the transforms store vectors in any layout."""
        if self.tile.is_first:
            return self._moving
        return tuple(sorted(self._moving, key=self._is_channel))

    @cached_property
    def _product_axes(self) -> tuple[Axis, ...]:
        """Of the products: filters come last, as channels do of the data."""
        axes = [self._axis(axis.name) for axis in self.window.stage.axes]
        return tuple(axes if self.tile.is_first else sorted(axes, key=self._is_filter))

    @cached_property
    def _tiles(self) -> _TileNumbering:
        together: tuple[Axis, ...] = ()
        if self.joins_tiles:
            made = [self._axis(axis.name) for axis in self.window.stage.axes]
            sides = [self._axis(side.axis.name) for side in self.window.sides]
            images = [
                axis
                for axis in self._moving
                if axis in made and axis not in sides and axis not in self._weight_axes
            ]
            together = (*images, *sides)
        number = Axis(
            name=fresh_name("row", self._extents), extent=prod(axis.extent for axis in together)
        )
        return _TileNumbering(together=together, number=number)

    def _axis(self, name: str) -> Axis:
        return Axis(name=name, extent=self._extents[name])

    # --- bodies

    @property
    def _u(self) -> Scalar:
        def weight(steps: Sequence[int]) -> Scalar:
            element = {
                side.step.name: constant(step)
                for side, step in zip(self.window.sides, steps, strict=True)
            }
            indices = (substitute(index, element) for index in self.window.weights.indices)
            return Read(self.window.weights.tensor, tuple(indices))

        rows = [Var(axis.name) for axis in self._inside]
        return _transformed(self.tile.transforms.window, rows, weight)

    @property
    def _v(self) -> Scalar:
        def value(steps: Sequence[int]) -> Scalar:
            indices = list(self.window.data.indices)
            for side, step in zip(self.window.sides, steps, strict=True):
                indices[side.dimension] = add(
                    times(Var(side.axis.name), self.tile.outputs), constant(side.offset + step)
                )
            return Read(self.window.data.tensor, tuple(indices), Const(0.0, "float32"))

        rows = [Var(axis.name) for axis in self._inside]
        return _transformed(self.tile.transforms.inputs, rows, value)

    @property
    def _y(self) -> Scalar:
        sides = {side.axis.name for side in self.window.sides}
        length = constant(self.tile.outputs)

        def of_tile(axis: Axis) -> Scalar:
            index = Var(axis.name)
            return Binary("floordiv", index, length) if axis.name in sides else index

        def product(inside: Sequence[int]) -> Scalar:
            tiles = self._tiles.indices([(axis, of_tile(axis)) for axis in self._product_axes])
            axes = self._tiles.axes(self._product_axes)
            values = dict(zip(axes, tiles, strict=True))
            values |= zip(self._inside, map(constant, inside), strict=True)
            placed = self._with_places(axes, self._is_filter)
            return Read(self._names["m"], tuple(values[axis] for axis in placed))

        rows = [Binary("floormod", Var(side.axis.name), length) for side in self.window.sides]
        return _transformed(self.tile.transforms.outputs, rows, product)


# --- products with matrices


def _transformed(
    matrix: Transform, rows: Sequence[Scalar], element: Callable[[Sequence[int]], Scalar]
) -> Scalar:
    """An element of x with each of its directions multiplied by the matrix.

    `rows` has the index of a row for each direction, `element` the elements of x. The
    last direction is summed first: its sums are the same for all rows of the first
    one, so that code for a whole tile computes them once.
    """

    def chosen(numbers: tuple[int, ...]) -> Scalar:
        if len(numbers) == len(rows):
            return _sums([matrix.groups(number) for number in numbers], (), element)
        *others, last = [chosen((*numbers, number)) for number in range(len(matrix.rows))]
        result = last
        for number, value in reversed(list(enumerate(others))):
            result = Select(Binary("eq", rows[len(numbers)], constant(number)), value, result)
        return result

    return chosen(())


def _sums(
    rows: Sequence[Sequence[Group]],
    columns: tuple[int, ...],
    element: Callable[[Sequence[int]], Scalar],
) -> Scalar:
    """The sum over the columns of all directions but those with a column."""
    if len(columns) == len(rows):
        return element(columns)
    return _sum(
        [
            (
                group.factor,
                _sum(
                    [
                        (factor, _sums(rows, (*columns, column), element))
                        for column, factor in group.terms
                    ]
                ),
            )
            for group in rows[len(columns)]
        ]
    )


def _sum(terms: Sequence[tuple[Fraction, Scalar]]) -> Scalar:
    """The sum of factor times value, terms with a positive factor first."""
    total: Scalar | None = None
    for factor, value in sorted(terms, key=lambda term: term[0] < 0):
        size = abs(factor)
        scaled = value if size == 1 else Binary("mul", value, Const(float(size), "float32"))
        if total is None:
            total = scaled if factor > 0 else Binary("sub", Const(0.0, "float32"), scaled)
        else:
            total = Binary("add" if factor > 0 else "sub", total, scaled)
    assert total is not None
    return total

"""Winograd's F(2x2, 3x3): convolutions of 3x3 windows with fewer multiplications.

Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks" (2016), section 4.1:
a tile of 2x2 outputs is computed from a tile of 4x4 inputs with 16 multiplications
instead of 36. One stage is rewritten into four: transformed weights, transformed
inputs, their products summed over channels (16 matrix products), and transformed
outputs. Each has sketches like any other stage. Which axes are rows and columns follows
from the indices. Rounding errors grow by a small factor, so the algorithm is for
`numerics=fast`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

from tuner.spaces.program.tiles import add, constant, times
from tuner.spaces.rewrite.stages import fresh_name, renamed, tensor_names
from tuner.workload.affine import linear
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

OUTPUT_TILE = 2  # outputs of a tile in each direction
WINDOW = 3
INPUT_TILE = OUTPUT_TILE + WINDOW - 1  # inputs of a tile in each direction
# Multiplications of the sum per multiplication here: 2.25.
MULTIPLICATION_SAVING = (OUTPUT_TILE * WINDOW / INPUT_TILE) ** 2
SUFFIX = "win"  # of names of rewritten stages, whose knobs differ from the original's

Matrix = tuple[tuple[float, ...], ...]
WEIGHTS: Matrix = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))  # G
INPUTS: Matrix = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))  # B transposed
OUTPUTS: Matrix = ((1, 1, 1, 0), (0, 1, -1, -1))  # A transposed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One direction of the window: the output axis along which it moves."""

    axis: Axis  # of the output
    step: str  # the reduction axis within the window
    dimension: int  # of the input
    weight: int  # dimension of the weights
    offset: int  # of the window's first input: minus the padding


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    stage: Stage
    data: Read
    weights: Read
    sides: tuple[_Side, _Side]


def winograd(expression: Expression, *, joins_tiles: bool = False) -> Expression | None:
    """The expression with its first 3x3 convolution of stride 1 rewritten.

    Stages get new names. None without such a convolution. `joins_tiles` numbers the
    tiles of all images of a batch along one axis. The products then are plain matrix
    products, whose register tiles may span images.
    """
    window = next(
        (
            candidate
            for stage in expression.stages
            if (candidate := _window(stage, expression)) is not None
        ),
        None,
    )
    if window is None:
        return None
    transformed = _rewritten(window, tensor_names(expression), joins_tiles=joins_tiles)
    stages = tuple(
        replacement
        for stage in expression.stages
        for replacement in (transformed if stage is window.stage else (stage,))
    )
    return renamed(replace(expression, stages=stages), SUFFIX)


# --- recognising a convolution
# ------------------------------------------------------------------------------


def _window(stage: Stage, expression: Expression) -> _Window | None:
    if stage.reducer != "sum" or stage.dtype != "float32" or stage.accumulator != "float32":
        return None
    match stage.body:
        case Binary(op="mul", lhs=Read() as left, rhs=Read() as right):
            pairs = ((left, right), (right, left))
        case _:
            return None
    for data, weights in pairs:
        sides = _sides(stage, data, weights)
        if sides is not None and weights.pad is None and (data.pad is None or data.pad.value == 0):
            return _Window(stage=stage, data=data, weights=weights, sides=sides)
    return None


def _sides(stage: Stage, data: Read, weights: Read) -> tuple[_Side, _Side] | None:
    """The two dimensions of the input along which the window moves.

    None unless everything else is indexed by plain axes.
    """
    plain = [index.name if isinstance(index, Var) else None for index in weights.indices]
    spatial, reduced = (
        {axis.name: axis for axis in axes} for axes in (stage.axes, stage.reduce_axes)
    )
    sides: list[_Side] = []
    for dimension, index in enumerate(data.indices):
        if isinstance(index, Var):
            continue
        form = linear(index)
        if form is None or len(form.coefficients) != 2 or set(form.coefficients.values()) != {1}:
            return None
        axis = next((spatial[name] for name in form.coefficients if name in spatial), None)
        step = next((reduced[name] for name in form.coefficients if name in reduced), None)
        if (
            axis is None
            or step is None
            or step.extent != WINDOW
            or step.name not in plain
            or axis.name in plain
        ):
            return None
        sides.append(
            _Side(
                axis=axis,
                step=step.name,
                dimension=dimension,
                weight=plain.index(step.name),
                offset=form.constant,
            )
        )
    others = [index.name for index in data.indices if isinstance(index, Var)]
    windowed = {name for side in sides for name in (side.step, side.axis.name)}
    if (
        len(sides) != 2
        or None in plain
        or windowed & set(others)
        or min(side.axis.extent for side in sides) < INPUT_TILE
    ):
        return None
    if len(set(plain)) != len(plain) or len(set(others)) != len(others):
        return None
    return sides[0], sides[1]


# --- the four stages
# ------------------------------------------------------------------------------


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


def _rewritten(
    window: _Window, reserved: Collection[str], *, joins_tiles: bool
) -> tuple[Stage, ...]:
    stage, (rows, columns) = window.stage, window.sides
    extents = stage.extents
    # Along the sides there are tiles in place of outputs.
    extents |= {side.axis.name: -(-side.axis.extent // OUTPUT_TILE) for side in window.sides}
    tile_axes = tuple(
        Axis(name=fresh_name(f"{side.step}q", extents), extent=INPUT_TILE) for side in window.sides
    )
    names = {part: fresh_name(f"{stage.name}{part}", reserved) for part in ("u", "v", "m")}

    def axis(name: str) -> Axis:
        return Axis(name=name, extent=extents[name])

    steps = {side.step for side in window.sides}
    kept = [
        index.name
        for index in window.weights.indices
        if isinstance(index, Var) and index.name not in steps
    ]
    moving = [
        axis(
            next(
                (side.axis.name for side in window.sides if side.dimension == dimension),
                getattr(index, "name", ""),
            )
        )
        for dimension, index in enumerate(window.data.indices)
    ]
    made = [axis(output_axis.name) for output_axis in stage.axes]
    channels = tuple(reduced for reduced in stage.reduce_axes if reduced.name not in steps)
    sided = [rows.axis.name, columns.axis.name]
    together: tuple[Axis, ...] = ()
    if joins_tiles:
        images = [moved for moved in moving if moved in made and moved.name not in (*sided, *kept)]
        together = (*images, *map(axis, sided))
    number = Axis(name=fresh_name("row", extents), extent=prod(fused.extent for fused in together))
    tiles = _TileNumbering(together=together, number=number)
    u = replace(
        stage,
        name=names["u"],
        axes=(*tile_axes, *map(axis, kept)),
        reduce_axes=(),
        reducer=None,
        body=_u(window, tile_axes),
    )
    body = substitute(_v(window, tile_axes), tiles.parts)
    v = replace(
        stage,
        name=names["v"],
        axes=(*tile_axes, *tiles.axes(moving)),
        reduce_axes=(),
        reducer=None,
        body=body,
    )
    tile_index = tuple(Var(within.name) for within in tile_axes)
    product = Binary(
        "mul",
        Read(names["v"], (*tile_index, *(Var(moved.name) for moved in tiles.axes(moving)))),
        Read(names["u"], (*tile_index, *(Var(name) for name in kept))),
    )
    m = replace(
        stage,
        name=names["m"],
        axes=(*tile_axes, *tiles.axes(made)),
        reduce_axes=channels,
        body=product,
    )
    sums = [_transformed(OUTPUTS, _half(side.axis.name)) for side in (rows, columns)]

    def output(a: int, b: int) -> Scalar:
        places: list[tuple[Axis, Scalar]] = [
            (
                output_axis,
                Binary("floordiv", Var(output_axis.name), constant(OUTPUT_TILE))
                if output_axis.name in sided
                else Var(output_axis.name),
            )
            for output_axis in made
        ]
        return Read(names["m"], (constant(a), constant(b), *tiles.indices(places)))

    y = replace(stage, reduce_axes=(), reducer=None, body=_both(sums[0], sums[1], output))
    return u, v, m, y


def _u(window: _Window, tile_axes: Sequence[Axis]) -> Scalar:
    rows, columns = window.sides

    def weight(r: int, s: int) -> Scalar:
        element = {rows.step: constant(r), columns.step: constant(s)}
        return Read(
            window.weights.tensor,
            tuple(substitute(index, element) for index in window.weights.indices),
        )

    first, second = (_transformed(WEIGHTS, Var(axis.name)) for axis in tile_axes)
    return _both(first, second, weight)


def _v(window: _Window, tile_axes: Sequence[Axis]) -> Scalar:
    rows, columns = window.sides

    def value(i: int, j: int) -> Scalar:
        indices = list(window.data.indices)
        for side, step in ((rows, i), (columns, j)):
            indices[side.dimension] = add(
                times(Var(side.axis.name), OUTPUT_TILE), constant(side.offset + step)
            )
        return Read(window.data.tensor, tuple(indices), Const(0.0, "float32"))

    first, second = (_transformed(INPUTS, Var(axis.name)) for axis in tile_axes)
    return _both(first, second, value)


Chosen = tuple[Scalar, Matrix]  # the index of a row, and the matrix


def _transformed(matrix: Matrix, row: Scalar) -> Chosen:
    return row, matrix


def _half(name: str) -> Scalar:
    return Binary("floormod", Var(name), constant(OUTPUT_TILE))


def _both(first: Chosen, second: Chosen, element: Callable[[int, int], Scalar]) -> Scalar:
    """Element (p, q) of first · x · secondᵀ, where the indices of the rows are p and q."""

    def along(p: int) -> Scalar:
        return _choice(second, lambda q: _sum(_terms(first[1][p], second[1][q], element)))

    return _choice(first, along)


def _choice(chosen: Chosen, value: Callable[[int], Scalar]) -> Scalar:
    index, matrix = chosen
    result = value(len(matrix) - 1)
    for row in reversed(range(len(matrix) - 1)):
        result = Select(Binary("eq", index, constant(row)), value(row), result)
    return result


def _terms(
    left: Sequence[float], right: Sequence[float], element: Callable[[int, int], Scalar]
) -> list[tuple[float, Scalar]]:
    return [
        (a * b, element(i, j)) for i, a in enumerate(left) for j, b in enumerate(right) if a and b
    ]


def _sum(terms: Sequence[tuple[float, Scalar]]) -> Scalar:
    """The sum of factor times value, terms with a positive factor first."""
    ordered = sorted(terms, key=lambda term: term[0] < 0)
    total: Scalar | None = None
    for factor, value in ordered:
        size = value if abs(factor) == 1 else Binary("mul", value, Const(abs(factor), "float32"))
        if total is None:
            total = size if factor > 0 else Binary("sub", Const(0.0, "float32"), size)
        else:
            total = Binary("add" if factor > 0 else "sub", total, size)
    assert total is not None
    return total

"""Convolutions of 3x3 windows with fewer multiplications: Winograd's F(2x2, 3x3), as a
rewriting of one stage into four.

Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks" (2016), section 4.1:
squares of 2x2 outputs from squares of 4x4 inputs, 16 multiplications where the sum
needs 36. The stages are the weights transformed, the inputs transformed, their products
summed over channels (16 matrix products) and the outputs transformed; each then has
sketches like any other. Which axes are rows and columns follows from the stage's
indices alone. Rounding errors grow by a small factor, so it is for `numerics=fast`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

from tuner.spaces.program.tiles import add, constant, times
from tuner.spaces.rewrite.access import linear
from tuner.spaces.rewrite.stages import names, renamed, unused
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

SQUARE = 2  # outputs of a square on each side
WINDOW = 3
POINTS = SQUARE + WINDOW - 1  # inputs of a square on each side
SAVING = (SQUARE * WINDOW / POINTS) ** 2  # times as many multiplications in the sum as here: 2.25
SUFFIX = "win"  # of the names of rewritten stages; their knobs are others than those of the sum

Matrix = tuple[tuple[float, ...], ...]
WEIGHTS: Matrix = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))  # G
INPUTS: Matrix = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))  # B transposed
OUTPUTS: Matrix = ((1, 1, 1, 0), (0, 1, -1, -1))  # A transposed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One side of the window: the output axis that a window of three moves along."""

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


def winograd(expression: Expression, *, joined: bool = False) -> Expression | None:
    """The expression with its first 3x3 convolution of stride 1 rewritten, stages under
    new names; None without one.

    `joined`: squares are numbered along one axis, together with the images of a batch,
    so that the products are those of plain matrices, whose rows need not be a tile's
    multiple image by image.
    """
    found = next(
        (
            window
            for stage in expression.stages
            if (window := _window(stage, expression)) is not None
        ),
        None,
    )
    if found is None:
        return None
    made = _rewritten(found, names(expression), joined=joined)
    stages = tuple(
        one for stage in expression.stages for one in (made if stage is found.stage else (stage,))
    )
    return renamed(replace(expression, stages=stages), SUFFIX)


# --- what a convolution is
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
    """The two dimensions of the input in which a window moves; everything else is
    indexed by plain axes."""
    plain = [index.name if isinstance(index, Var) else None for index in weights.indices]
    spatial, reduced = (
        {axis.name: axis for axis in axes} for axes in (stage.axes, stage.reduce_axes)
    )
    found: list[_Side] = []
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
        found.append(
            _Side(
                axis=axis,
                step=step.name,
                dimension=dimension,
                weight=plain.index(step.name),
                offset=form.constant,
            )
        )
    others = [index.name for index in data.indices if isinstance(index, Var)]
    windowed = {name for side in found for name in (side.step, side.axis.name)}
    if (
        len(found) != 2
        or None in plain
        or windowed & set(others)
        or min(side.axis.extent for side in found) < POINTS
    ):
        return None
    if len(set(plain)) != len(plain) or len(set(others)) != len(others):
        return None
    return found[0], found[1]


# --- the four stages
# ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Squares:
    """How squares are numbered: each axis for itself, or several, the last fastest, along one."""

    together: tuple[Axis, ...]  # none where each is for itself
    number: Axis  # what stands where the last of them stood

    def axes(self, axes: Sequence[Axis]) -> tuple[Axis, ...]:
        kept = [one for one in axes if one not in self.together[:-1]]
        return tuple(self.number if one in self.together else one for one in kept)

    @property
    def parts(self) -> dict[str, Scalar]:
        """Each of the axes from the number."""
        found: dict[str, Scalar] = {}
        step = 1
        for axis in reversed(self.together):
            value: Scalar = (
                Var(self.number.name)
                if step == 1
                else Binary("floordiv", Var(self.number.name), constant(step))
            )
            step *= axis.extent
            found[axis.name] = (
                value
                if axis == self.together[0]
                else Binary("floormod", value, constant(axis.extent))
            )
        return found

    def indices(self, values: Sequence[tuple[Axis, Scalar]]) -> tuple[Scalar, ...]:
        """What indexes a tensor of `axes(...)`, given what would index each axis."""
        known = {axis.name: value for axis, value in values}
        total: Scalar = constant(0)
        for axis in self.together:
            total = add(
                times(total, axis.extent) if total != constant(0) else total, known[axis.name]
            )
        return tuple(
            total if one == self.number else known[one.name]
            for one in self.axes([axis for axis, _ in values])
        )


def _rewritten(window: _Window, taken: Collection[str], *, joined: bool) -> tuple[Stage, ...]:
    stage, (rows, columns) = window.stage, window.sides
    extents = stage.extents
    extents |= {
        side.axis.name: -(-side.axis.extent // SQUARE) for side in window.sides
    }  # of squares, where outputs stood
    square = tuple(
        Axis(name=unused(f"{side.step}q", extents), extent=POINTS) for side in window.sides
    )
    names = {part: unused(f"{stage.name}{part}", taken) for part in ("u", "v", "m")}

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
                (side.axis.name for side in window.sides if side.dimension == at),
                getattr(index, "name", ""),
            )
        )
        for at, index in enumerate(window.data.indices)
    ]
    made = [axis(one.name) for one in stage.axes]
    channels = tuple(one for one in stage.reduce_axes if one.name not in steps)
    sided = [rows.axis.name, columns.axis.name]
    together: tuple[Axis, ...] = ()
    if joined:
        images = [one for one in moving if one in made and one.name not in (*sided, *kept)]
        together = (*images, *map(axis, sided))
    number = Axis(name=unused("row", extents), extent=prod(one.extent for one in together))
    squares = _Squares(together=together, number=number)
    u = replace(
        stage,
        name=names["u"],
        axes=(*square, *map(axis, kept)),
        reduce_axes=(),
        reducer=None,
        body=_u(window, square),
    )
    body = substitute(_v(window, square), squares.parts)
    v = replace(
        stage,
        name=names["v"],
        axes=(*square, *squares.axes(moving)),
        reduce_axes=(),
        reducer=None,
        body=body,
    )
    at = tuple(Var(one.name) for one in square)
    product = Binary(
        "mul",
        Read(names["v"], (*at, *(Var(one.name) for one in squares.axes(moving)))),
        Read(names["u"], (*at, *(Var(name) for name in kept))),
    )
    m = replace(
        stage,
        name=names["m"],
        axes=(*square, *squares.axes(made)),
        reduce_axes=channels,
        body=product,
    )
    sums = [_transformed(OUTPUTS, _half(side.axis.name)) for side in (rows, columns)]

    def output(a: int, b: int) -> Scalar:
        places: list[tuple[Axis, Scalar]] = [
            (
                one,
                Binary("floordiv", Var(one.name), constant(SQUARE))
                if one.name in sided
                else Var(one.name),
            )
            for one in made
        ]
        return Read(names["m"], (constant(a), constant(b), *squares.indices(places)))

    y = replace(stage, reduce_axes=(), reducer=None, body=_both(sums[0], sums[1], output))
    return u, v, m, y


def _u(window: _Window, square: Sequence[Axis]) -> Scalar:
    rows, columns = window.sides

    def weight(r: int, s: int) -> Scalar:
        at = {rows.step: constant(r), columns.step: constant(s)}
        return Read(
            window.weights.tensor, tuple(substitute(index, at) for index in window.weights.indices)
        )

    first, second = (_transformed(WEIGHTS, Var(axis.name)) for axis in square)
    return _both(first, second, weight)


def _v(window: _Window, square: Sequence[Axis]) -> Scalar:
    rows, columns = window.sides

    def value(i: int, j: int) -> Scalar:
        indices = list(window.data.indices)
        for side, at in ((rows, i), (columns, j)):
            indices[side.dimension] = add(
                times(Var(side.axis.name), SQUARE), constant(side.offset + at)
            )
        return Read(window.data.tensor, tuple(indices), Const(0.0, "float32"))

    first, second = (_transformed(INPUTS, Var(axis.name)) for axis in square)
    return _both(first, second, value)


Chosen = tuple[Scalar, Matrix]  # which row of the matrix, as an index; the matrix


def _transformed(matrix: Matrix, row: Scalar) -> Chosen:
    return row, matrix


def _half(name: str) -> Scalar:
    return Binary("floormod", Var(name), constant(SQUARE))


def _both(first: Chosen, second: Chosen, element: Callable[[int, int], Scalar]) -> Scalar:
    """Element (p, q) of first · x · secondᵀ, each row chosen by its index."""

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
    """Terms with a positive factor first, so that the others are subtracted."""
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

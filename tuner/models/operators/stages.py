"""Stages on their way to a node: recorded from a body, widened, named by position."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tuner.models.operators.scalars import Elem, constant, iterator
from tuner.workload.bounds import without_redundant_padding
from tuner.workload.dtypes import COMPUTED_IN, DType
from tuner.workload.expression import (
    Axis,
    Cast,
    Expression,
    Read,
    Reducer,
    Scalar,
    Stage,
    Tensor,
    rewrite,
)

_FOLDED_ELEMENTS = 1 << 26  # of a result computed at import; what is larger is computed at run time
_FOLDED_OPERATIONS = 1 << 30  # of all points of such a result together

Body = Callable[..., Elem]


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """What one stage computes: `body(*i, *r)` at each i of `shape`, over all r of `over`."""

    shape: tuple[int, ...]
    over: tuple[int, ...] = ()  # extents of 1 make no loop
    body: Body
    reducer: Reducer | None = None
    dtype: DType | None = None  # of the results; None: that of the body
    order: tuple[int, ...]  # in which the dimensions are stored

    @property
    def looped(self) -> tuple[int, ...]:
        """The dimensions of `over` that make loops."""
        return tuple(number for number, extent in enumerate(self.over) if extent > 1)

    def elem(self) -> Elem:
        """The body at the loops' iterators."""
        return self.body(
            *(iterator(f"i{number}") for number in range(len(self.shape))),
            *(
                iterator(f"r{number}") if number in self.looped else constant(0, "int64")
                for number in range(len(self.over))
            ),
        )

    def stage(self, name: str, elem: Elem, tensors: Mapping[str, Tensor]) -> Stage:
        """The stage of this name; `tensors` has those that it reads."""
        axes = tuple(Axis(name=f"i{number}", extent=self.shape[number]) for number in self.order)
        if not axes:
            axes = (Axis(name="u", extent=1),)
        reduce_axes = tuple(Axis(name=f"r{n}", extent=self.over[n]) for n in self.looped)
        extents = {axis.name: axis.extent for axis in (*axes, *reduce_axes)}
        return Stage(
            name=name,
            axes=axes,
            body=without_redundant_padding(elem.node, extents, tensors),
            dtype=self.dtype or elem.dtype,
            reduce_axes=reduce_axes,
            reducer=self.reducer if self.looped else None,
            accumulator=elem.dtype,
        )


def widened(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages, all floats but those of the last stored in what they are computed in."""
    wide = {
        stage.name: COMPUTED_IN[stage.dtype]
        for stage in stages[:-1]
        if stage.dtype in ("float16", "bfloat16")
    }

    def change(part: Scalar) -> Scalar | None:
        """A read of a widened stage, without the conversion around it."""
        if isinstance(part, Cast) and isinstance(part.arg, Read) and part.arg.tensor in wide:
            read = rewrite(part.arg, change)
            return read if part.dtype == wide[part.arg.tensor] else Cast(part.dtype, read)
        if not isinstance(part, Read) or part.tensor not in wide:
            return None
        indices = tuple(rewrite(index, change) for index in part.indices)
        pad = None if part.pad is None else replace(part.pad, dtype=wide[part.tensor])
        return replace(part, indices=indices, pad=pad)

    return tuple(
        replace(stage, body=rewrite(stage.body, change), dtype=wide.get(stage.name, stage.dtype))
        for stage in stages
    )


def foldable(node: Expression) -> bool:
    """Whether a node of constants is computed at import."""
    return (
        sum(stage.points for stage in node.stages) <= _FOLDED_OPERATIONS
        and max(prod(stage.tensor.shape) for stage in node.stages) <= _FOLDED_ELEMENTS
    )

"""The knobs of the row sketch.

They decide how many rows run at a time, the vectors of the column, and which stages are
kept and which computed twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from tuner.spaces.core.choice import Choice, choice
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.cpu.row_stages import RowStages
from tuner.spaces.cpu.store_mode import StoreMode, store_modes
from tuner.spaces.program.program import MathFunctions
from tuner.spaces.rewrite.groups import COLUMN
from tuner.spaces.rewrite.stages import approximated_functions


@dataclass(frozen=True, kw_only=True)
class RowChoices:
    """All decisions of a row sketch."""

    register_tile: Choice[tuple[int, ...]]  # rows of each tiled axis, and elements of the column
    # Rows of each tiled axis, where rows share operands; 0 for no blocking.
    cache_blocks: Mapping[str, Choice[int]]
    outer_order: Choice[tuple[str, ...]]
    inner_order: Choice[tuple[str, ...]]
    recompute: Mapping[str, Choice[bool]]  # of each optional stage: whether every reader does
    prefetch: Choice[int]  # tiles of rows
    store_mode: Choice[StoreMode]
    math_functions: Choice[MathFunctions]

    @property
    def in_order(self) -> tuple[Choice[Any], ...]:
        """In the order of the knobs."""
        return (
            self.register_tile,
            *self.cache_blocks.values(),
            self.outer_order,
            self.inner_order,
            *self.recompute.values(),
            self.prefetch,
            self.store_mode,
            self.math_functions,
        )


def row_choices(owner: str, stages: RowStages) -> RowChoices:
    """The choices of a sketch whose knobs' names begin with `owner`."""
    group = stages.group
    modes = store_modes(group.output, COLUMN, stages.lanes, stages.context.target)
    varied = any(approximated_functions(stage.body) for stage in group.stages)
    functions: tuple[MathFunctions, ...] = ("polynomial", "libm") if varied else ("libm",)
    return RowChoices(
        register_tile=choice(owner, KnobRole.REGISTER_TILE, stages.register_tiles(), tuple),
        cache_blocks={
            axis.name: choice(
                owner, KnobRole.CACHE_BLOCK, stages.block_sizes(axis), int, subject=axis.name
            )
            for axis in (stages.tiled_rows if stages.reuse else ())
        },
        outer_order=_orders(owner, KnobRole.OUTER_ORDER, stages),
        inner_order=_orders(owner, KnobRole.INNER_ORDER, stages),
        recompute={
            stage.name: Choice(
                owner=owner,
                role=KnobRole.RECOMPUTE,
                values=(False, True),
                stored=("keep", "recompute"),
                subject=stage.name,
            )
            for stage in stages.optional
        },
        prefetch=choice(owner, KnobRole.PREFETCH, stages.prefetch_distances(), int),
        store_mode=choice(owner, KnobRole.STORE_MODE, modes, lambda mode: mode.value),
        math_functions=choice(owner, KnobRole.MATH_FUNCTIONS, functions, str),
    )


def _orders(owner: str, role: KnobRole, stages: RowStages) -> Choice[tuple[str, ...]]:
    """All row axes: those without a say first, then the tiled ones in every order where
    rows share operands."""
    tiled = stages.tiled_rows
    rest = [axis.name for axis in stages.group.rows if axis not in tiled]
    every = tuple(permutations(range(len(tiled))))
    stored = every if stages.reuse else every[:1]
    orders = tuple((*rest, *(tiled[position].name for position in order)) for order in stored)
    return Choice(owner=owner, role=role, values=orders, stored=stored)

"""The algorithms for a workload.

They are its stages as written, split reductions, and what fast numerics allows:
Winograd's convolutions and bf16x3 products.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import Buffer, Program
from tuner.spaces.rewrite import polyphase, streaming, tile_fusion
from tuner.spaces.rewrite.bf16x3 import PRODUCTS, bf16x3
from tuner.spaces.rewrite.dead_code import without_dead_code
from tuner.spaces.rewrite.groups import Group, groups
from tuner.spaces.rewrite.liveness import live_flops
from tuner.spaces.rewrite.padded_maps import with_padded_maps
from tuner.spaces.rewrite.parallel_units import ONE_THREAD, ParallelUnits
from tuner.spaces.rewrite.quantized_products import (
    in_integers,
    quantized_product,
    with_weights_inlined,
)
from tuner.spaces.rewrite.rfactor import rfactored
from tuner.spaces.rewrite.stages import cost, hoisted, inlined, renamed, stored_narrow
from tuner.spaces.rewrite.unpacking import unpacked_sum
from tuner.spaces.rewrite.winograd import winograd, winograd_tiles
from tuner.spaces.rewrite.winograd_tile import TILES, WinogradTile
from tuner.target.roofline import relative_rate
from tuner.target.target import Target
from tuner.workload.compulsory import least_flops
from tuner.workload.dtypes import DTYPE_BYTES, DType
from tuner.workload.expression import Expression, arithmetic
from tuner.workload.workload import Workload

SERIAL_SUFFIX = "alone"  # of names of stages that one thread computes though there are more
# With one of these features three products of bfloat16 are faster than one of float32.
BF16X3_FEATURES = frozenset({"amx-bf16", "sm_80", "sm_90"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One way to compute the workload: its own stages, inlined, or rewritten ones."""

    stated: Expression  # with the inputs and outputs as callers have them
    expression: Expression
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, DType]
    groups: tuple[Group, ...]
    rewritten: bool
    in_patches: bool = False  # whether its maps are computed a patch at a time
    units: int  # threads or multiprocessors that share its loops

    @property
    def exact(self) -> frozenset[str]:
        """Tensors that lie in memory in their declared dtypes.

        Those are the inputs and, of a rewritten algorithm, the stages.
        """
        inputs = frozenset(tensor.name for tensor in self.expression.inputs)
        return (
            inputs | {stage.name for stage in self.expression.stages} if self.rewritten else inputs
        )

    @property
    def nbytes(self) -> int:
        """Bytes of inputs, outputs, and what lies in memory between groups."""
        between = [group.name for group in self.groups if group.name not in self.expression.outputs]
        return self.stated.nbytes + sum(
            prod(self.shapes[name]) * DTYPE_BYTES[self.dtypes[name]] for name in between
        )

    def program(
        self, nests: Sequence[Nest], constants: tuple[str, ...] = (), *, exact: bool = False
    ) -> Program:
        """The program of one nest for each group, in the groups' order.

        `constants` are the inputs declared constant. `exact` keeps buffers between
        groups in the bits of their dtypes where the compiler would widen them.
        """
        outputs = set(self.expression.outputs)
        written = [
            replace(self.stated.tensor(name), name=written)
            for name, written in zip(self.stated.outputs, self.expression.outputs, strict=True)
        ]
        between = tuple(
            Buffer(
                name=group.name,
                shape=self.shapes[group.name],
                dtype=self.dtypes[group.name],
                raw_bits=exact,
            )
            for group in self.groups
            if group.name not in outputs
        )
        trees = tuple(
            replace(nest.tree, section=group.name)
            for group, nest in zip(self.groups, nests, strict=True)
            if nest.tree is not None
        )
        return Program(
            inputs=self.stated.inputs,
            outputs=tuple(written),
            views={
                tensor.name: self.shapes[tensor.name]
                for tensor in (*self.stated.inputs, *written)
                if self.shapes[tensor.name] != tensor.shape
            },
            buffers=(*between, *(buffer for nest in nests for buffer in nest.buffers)),
            blocks=tuple(
                replace(block, section=group.name)
                for group, nest in zip(self.groups, nests, strict=True)
                for block in nest.blocks
            ),
            steps=tuple(step for nest in nests for step in nest.steps),
            trees=trees,
            section_order=tuple(group.name for group in self.groups) if trees else (),
            constants=constants,
        )


def algorithms(
    plain: Expression,
    numerics: str,
    prepared: Callable[[Expression], Expression],
    *,
    joins_tiles: bool,
    streams: bool = False,
    fuses: bool = False,
    tiles: Sequence[WinogradTile] = TILES,
    isa: Collection[str] = (),
    units: ParallelUnits = ONE_THREAD,
) -> tuple[Algorithm, ...]:
    """The algorithms of a plainly named expression, its own first.

    `prepared` simplifies an expression for the target. `joins_tiles` numbers the tiles
    of Winograd's algorithm along one axis, `tiles` are those that it may have. `streams`
    adds the algorithm that reads rows part by part, `fuses` those that place groups in
    the tiles of their readers, where the stages allow it. `isa` holds the features of the
    target, `units` the threads or multiprocessors that share the loops.
    """
    whole = prepared(plain)
    stated = [(whole, units.count)]
    if (parts := rfactored(whole, units)) is not None:
        stated.append((inlined(parts), units.count))
    if sum(map(cost, whole.stages)) <= units.max_serial_operations:
        stated.append((renamed(whole, SERIAL_SUFFIX), 1))
    others = (
        fast_rewritings(plain, isa, tiles=tiles, joins_tiles=joins_tiles)
        if numerics != "strict"
        else ()
    )
    rewritten = (
        replace(
            _algorithm(plain, prepared(other.expression), units.count, rewritten=True),
            in_patches=other.in_patches,
        )
        for other in others
    )
    return (
        *(_algorithm(plain, variant, count, rewritten=False) for variant, count in stated),
        *(_streamed(plain, whole, units.count) if streams else ()),
        *(_fused(plain, whole, units.count) if fuses else ()),
        *rewritten,
    )


def _streamed(stated: Expression, whole: Expression, units: int) -> tuple[Algorithm, ...]:
    """The algorithm whose last reductions along a row read it part by part, if there are such."""
    expression = renamed(whole, streaming.SUFFIX)
    group = streaming.stream_group(expression)
    if group is None:
        return ()
    return (
        replace(
            _algorithm(stated, expression, units, rewritten=False),
            groups=groups(expression, (group,), streaming.streamed_away(expression, group)),
        ),
    )


def _fused(stated: Expression, whole: Expression, units: int) -> Iterator[Algorithm]:
    """Algorithms that place groups in the tiles of their readers: all that can be, and only
    what the last stage reads itself where that is less."""
    before: tuple[frozenset[str], ...] = ()
    whole = with_padded_maps(whole)
    for suffix, nearest in ((tile_fusion.SUFFIX, False), (tile_fusion.NEAREST_SUFFIX, True)):
        if (parts := tile_fusion.parts_in_tiles(whole, nearest=nearest)) in ((), before):
            continue
        before = parts
        expression = renamed(whole, suffix)
        fused = tile_fusion.fused_groups(expression, nearest=nearest)
        left_out = frozenset[str]().union(*map(tile_fusion.left_out, fused))
        yield replace(
            _algorithm(stated, expression, units, rewritten=False),
            groups=groups(expression, fused, left_out),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """An expression rewritten into stages that compute the same by another algorithm."""

    expression: Expression
    in_patches: bool = False  # whether its maps are computed a patch at a time


def fast_rewritings(
    plain: Expression,
    isa: Collection[str],
    *,
    tiles: Sequence[WinogradTile] = TILES,
    joins_tiles: bool = False,
) -> tuple[Rewriting, ...]:
    """What fast numerics adds to the ways to compute an expression on a target with the
    features `isa`."""
    others = [
        Rewriting(
            expression=winograd(plain, tile, joins_tiles=joins_tiles),
            in_patches=not tile.is_first,
        )
        for tile in winograd_tiles(plain, tiles)
    ]
    split = None if BF16X3_FEATURES.isdisjoint(isa) else bf16x3(plain)
    return (*others, *([] if split is None else [Rewriting(expression=split)]))


def has_fast_rewritings(plain: Expression, isa: Collection[str]) -> bool:
    """Whether fast numerics adds anything, which is found without rewriting."""
    return bool(winograd_tiles(plain)) or (
        not BF16X3_FEATURES.isdisjoint(isa) and bf16x3(plain) is not None
    )


def indices_by_expression(computed: Iterable[Algorithm]) -> list[list[int]]:
    """Positions in the sequence of each distinct expression, in order of appearance."""
    positions: dict[Expression, list[int]] = {}
    for place, algorithm in enumerate(computed):
        positions.setdefault(algorithm.expression, []).append(place)
    return list(positions.values())


def simplified(expression: Expression) -> Expression:
    """The expression as every target starts from it.

    Dead code is eliminated, invariant reductions are hoisted, and maps are inlined.
    """
    return inlined(hoisted(without_dead_code(expression)))


def fewest_flops(workload: Workload, target: Target | None = None) -> int:
    """Operations by which the time of a kernel is judged.

    Those are the operations of the fastest algorithm. Where it uses faster
    instructions, they are the operations that plain instructions do in the same time.
    """
    least = least_flops(workload)
    least = min(least, live_flops(polyphase.decompose(simplified(workload.expression))))
    least = min(least, _flops_of_few_bits(workload.expression, target))
    if workload.numerics == "strict":
        return least
    saving = max((tile.saving for tile in winograd_tiles(workload.expression)), default=1.0)
    if (
        target is not None
        and not BF16X3_FEATURES.isdisjoint(target.isa)
        and bf16x3(workload.expression) is not None
    ):
        saving = max(saving, relative_rate("bfloat16", target) / PRODUCTS)
        if workload.numerics == "tensor":
            saving = max(saving, relative_rate("tf32", target))
    return int(least / saving)


def _flops_of_few_bits(expression: Expression, target: Target | None) -> int:
    """Operations where sums with weights of few bits are multiply-adds alone: weights may be
    looked up, and scales multiply the sums of groups. Those of two integers are counted as
    what plain instructions do in their time."""
    whole = with_weights_inlined(stored_narrow(expression))
    dtypes = {name: tensor.dtype for name, tensor in whole.tensors.items()}
    total = float(whole.flops)
    for stage in whole.stages:
        product = quantized_product(stage, whole.shapes, dtypes)
        if product is None and unpacked_sum(stage, whole.shapes, dtypes) is None:
            continue
        exact = product is not None and in_integers(product, dtypes) is not None
        rate = relative_rate("int8", target) if exact and target is not None else 1.0
        total -= stage.points * (arithmetic(stage.body) + 1 - 2 / rate)
    return int(total)


def _algorithm(stated: Expression, whole: Expression, units: int, *, rewritten: bool) -> Algorithm:
    return Algorithm(
        stated=stated,
        expression=whole,
        shapes=whole.shapes,
        dtypes={name: tensor.dtype for name, tensor in whole.tensors.items()},
        groups=groups(whole),
        rewritten=rewritten,
        units=units,
    )

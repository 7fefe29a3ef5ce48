"""The ways to compute a workload: its stages as they stand, reductions in parts, and
what fast numerics lets them become."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import Buffer, Program
from tuner.spaces.rewrite.bf16x3 import PRODUCTS, bf16x3
from tuner.spaces.rewrite.dead_code import trimmed
from tuner.spaces.rewrite.groups import Group, groups, shapes_of
from tuner.spaces.rewrite.liveness import needed_flops
from tuner.spaces.rewrite.parallel_units import ONE_THREAD, Sharing
from tuner.spaces.rewrite.polyphase import phased
from tuner.spaces.rewrite.rfactor import rfactored
from tuner.spaces.rewrite.stages import cost, hoisted, inlined, renamed
from tuner.spaces.rewrite.winograd import SAVING, winograd
from tuner.target.roofline import relative_rate
from tuner.target.target import Target
from tuner.workload.compulsory import least_flops
from tuner.workload.expression import DType, Expression
from tuner.workload.workload import Workload

ALONE_SUFFIX = "alone"  # of the names of the stages that one thread does where several could
BF16X3 = frozenset(
    {"amx-bf16", "sm_80", "sm_90"}
)  # with one of them three products of bfloat16 are faster than one of float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One way to compute the workload: its stages as they stand, inlined, or rewritten ones."""

    stated: Expression  # with the inputs and outputs as callers have them
    expression: Expression
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, DType]
    groups: tuple[Group, ...]
    rewritten: bool
    units: int  # threads or multiprocessors that share its loops

    @property
    def exact(self) -> frozenset[str]:
        """Tensors that lie in memory in their own dtypes: the inputs, and of a
        rewritten one the stages."""
        inputs = frozenset(tensor.name for tensor in self.expression.inputs)
        return (
            inputs | {stage.name for stage in self.expression.stages} if self.rewritten else inputs
        )

    def program(
        self, nests: Sequence[Nest], constants: tuple[str, ...] = (), *, exact: bool = False
    ) -> Program:
        """The program of one nest for each group, in the groups' order. `constants`:
        inputs known ahead; `exact`: what lies between groups is kept in its dtype's own
        bits, where the compiler would widen it."""
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
        return Program(
            inputs=self.stated.inputs,
            outputs=tuple(written),
            views={
                one.name: self.shapes[one.name]
                for one in (*self.stated.inputs, *written)
                if self.shapes[one.name] != one.shape
            },
            buffers=(*between, *(buffer for nest in nests for buffer in nest.buffers)),
            blocks=tuple(
                replace(block, section=group.name)
                for group, nest in zip(self.groups, nests, strict=True)
                for block in nest.blocks
            ),
            steps=tuple(step for nest in nests for step in nest.steps),
            constants=constants,
        )


def algorithms(
    plain: Expression,
    numerics: str,
    prepared: Callable[[Expression], Expression],
    *,
    joined: bool,
    isa: Collection[str] = (),
    sharing: Sharing = ONE_THREAD,
) -> tuple[Algorithm, ...]:
    """The algorithms of a plainly named expression, its own first.

    `prepared` simplifies as a target wants it; `joined`: squares of a convolution are
    numbered along one axis; `isa`: what the target has beside plain arithmetic;
    `sharing`: who shares loops and long reductions.
    """
    whole = prepared(plain)
    stated = [(whole, sharing.units)]
    if (parts := rfactored(whole, sharing)) is not None:
        stated.append((inlined(parts), sharing.units))
    if sum(map(cost, whole.stages)) <= sharing.alone:
        stated.append((renamed(whole, ALONE_SUFFIX), 1))
    others: list[Expression | None] = []
    if numerics == "fast":
        others = [winograd(plain, joined=joined), None if BF16X3.isdisjoint(isa) else bf16x3(plain)]
    rewritten = (
        _algorithm(plain, prepared(other), sharing.units, rewritten=True)
        for other in others
        if other is not None
    )
    return (*(_algorithm(plain, one, count, rewritten=False) for one, count in stated), *rewritten)


def places(computed: Iterable[Algorithm]) -> list[list[int]]:
    """Where each algorithm stands in a sequence of them, in the order in which they come first."""
    found: dict[Expression, list[int]] = {}
    for place, algorithm in enumerate(computed):
        found.setdefault(algorithm.expression, []).append(place)
    return list(found.values())


def simplified(expression: Expression) -> Expression:
    """The expression as every target begins with it: nothing computed that nobody
    needs, or twice, and maps inlined."""
    return inlined(hoisted(trimmed(expression)))


def fewest_flops(workload: Workload, target: Target | None = None) -> int:
    """Operations of the workload by the algorithm that needs least time, as many as are
    done in that time without its instructions: what a time is judged by."""
    least = least_flops(workload)
    least = min(least, needed_flops(phased(simplified(workload.expression))))
    if workload.numerics != "fast":
        return least
    saving = SAVING if winograd(workload.expression) is not None else 1.0
    if (
        target is not None
        and not BF16X3.isdisjoint(target.isa)
        and bf16x3(workload.expression) is not None
    ):
        saving = max(saving, relative_rate("bfloat16", target) / PRODUCTS)
    return int(least / saving)


def _algorithm(stated: Expression, whole: Expression, units: int, *, rewritten: bool) -> Algorithm:
    return Algorithm(
        stated=stated,
        expression=whole,
        shapes=shapes_of(whole),
        dtypes={name: tensor.dtype for name, tensor in whole.tensors.items()},
        groups=groups(whole),
        rewritten=rewritten,
        units=units,
    )

"""The ways to compute a workload: its stages as they stand, and under fast numerics what they are rewritten to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.spaces.groups import Group, groups, shapes_of
from tuner.spaces.needed import needed_flops
from tuner.spaces.nest import Nest
from tuner.spaces.phases import phased
from tuner.spaces.program import Buffer, Program
from tuner.spaces.stages import hoisted, inlined
from tuner.spaces.trim import trimmed
from tuner.spaces.winograd import SAVING, winograd
from tuner.workload.compulsory import least_flops
from tuner.workload.expression import DType, Expression
from tuner.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One way to compute the workload: its stages as they stand, inlined, or rewritten ones."""

    stated: Expression  # with the inputs and outputs as callers have them
    expression: Expression
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, DType]
    groups: tuple[Group, ...]
    rewritten: bool

    def program(self, nests: Sequence[Nest], constants: tuple[str, ...] = ()) -> Program:
        """The program of one nest for each group, in the groups' order. `constants`: inputs known ahead."""
        outputs = set(self.expression.outputs)
        written = [
            replace(self.stated.tensor(name), name=written)
            for name, written in zip(self.stated.outputs, self.expression.outputs, strict=True)
        ]
        between = tuple(
            Buffer(name=group.name, shape=self.shapes[group.name], dtype=self.dtypes[group.name])
            for group in self.groups
            if group.name not in outputs
        )
        return Program(
            inputs=self.stated.inputs,
            outputs=tuple(written),
            views={
                one.name: self.shapes[one.name] for one in (*self.stated.inputs, *written) if self.shapes[one.name] != one.shape
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
    plain: Expression, numerics: str, prepared: Callable[[Expression], Expression], *, joined: bool
) -> tuple[Algorithm, ...]:
    """The algorithms of a plainly named expression, its own first.

    `prepared` simplifies as a target wants it; `joined`: squares of a convolution are numbered along one axis.
    """
    found = [_algorithm(plain, prepared(plain), rewritten=False)]
    if numerics == "fast" and (other := winograd(plain, joined=joined)) is not None:
        found.append(_algorithm(plain, prepared(other), rewritten=True))
    return tuple(found)


def simplified(expression: Expression) -> Expression:
    """The expression as every target begins with it: nothing computed that nobody needs, or twice, and maps inlined."""
    return inlined(hoisted(trimmed(expression)))


def fewest_flops(workload: Workload) -> int:
    """Operations of the workload by the algorithm that needs least: what a time is judged by."""
    least = least_flops(workload)
    least = min(least, needed_flops(phased(simplified(workload.expression))))
    fast = workload.numerics == "fast" and winograd(workload.expression) is not None
    return int(least / SAVING) if fast else least


def _algorithm(stated: Expression, whole: Expression, *, rewritten: bool) -> Algorithm:
    return Algorithm(
        stated=stated,
        expression=whole,
        shapes=shapes_of(whole),
        dtypes={tensor.name: tensor.dtype for tensor in (*whole.inputs, *(stage.tensor for stage in whole.stages))},
        groups=groups(whole),
        rewritten=rewritten,
    )

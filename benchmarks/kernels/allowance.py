"""The time that a machine allows a workload: its bytes, vector instructions and flops.

Bytes count at the bandwidth measured for a working set of their size. The result is
nearer to what a kernel can reach than the roofline, which grants every kernel the best of
read, write and copy and counts an exponential as one operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2

from tuner.spaces.rewrite import polyphase
from tuner.spaces.rewrite.dot_products import factors
from tuner.spaces.rewrite.liveness import live_conditions, live_flops
from tuner.spaces.rewrite.predicates import live_fraction, term_predicates
from tuner.spaces.rewrite.stages import inlined
from tuner.target.roofline import relative_rate
from tuner.target.target import Bandwidth, Limits, Target
from tuner.workload.compulsory import least_bytes
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import (
    Binary,
    Cast,
    Expression,
    Read,
    Scalar,
    Select,
    Stage,
    Unary,
    Var,
    rows_from_data,
    walk,
)
from tuner.workload.workload import Workload

# Vector instructions of a function, counted in the polynomials of
# tuner.lowering.math_functions (a select with its comparison: two); a division and a
# square root by their cost in multiply-adds on current cores.
COST: Mapping[str, int] = {
    "exp": 18,
    "log": 40,
    "tanh": 28,
    "erf": 30,
    "pow": 59,
    "div": 8,
    "sqrt": 10,
    "rsqrt": 18,
}


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """The least seconds that each resource needs. The longest bounds the kernel."""

    flops_s: float  # at the multiply-add peak
    instructions_s: float  # all vector instructions, each at the rate of multiply-adds
    products_s: float  # those of them that add a product to a sum
    bytes_s: float  # inputs read once, outputs written once

    @property
    def seconds(self) -> float:
        return max(self.flops_s, self.instructions_s, self.bytes_s)

    @property
    def by_memory(self) -> bool:
        """Whether something other than sums of products takes longest.

        Such kernels are held to bytes and instructions.
        """
        return self.products_s < max(self.bytes_s, self.instructions_s - self.products_s)


def allowance(workload: Workload, target: Target, threads: int) -> Allowance:
    """The time that a machine with measured limits allows a workload.

    Threads beyond its cores do not count.
    """
    assert target.limits is not None
    expression = workload.expression
    limits, count = target.limits, min(threads, target.cores)
    dtype = expression.inputs[0].dtype if expression.inputs else "float32"
    peak = limits.fma_flops * relative_rate(dtype, target) * count
    lanes = target.vector_bytes // 4
    per_second = limits.fma_flops / (2 * lanes) * count  # vector instructions of one operation each
    least = polyphase.decompose(inlined(expression))
    instructions, products = _instructions(least, target)
    return Allowance(
        flops_s=min(expression.flops, live_flops(least)) / peak,
        instructions_s=instructions / per_second,
        products_s=products / per_second,
        bytes_s=_bytes_s(workload, limits, count),
    )


def _bytes_s(workload: Workload, limits: Limits, threads: int) -> float:
    """Seconds that the bytes need.

    Reads and writes pair up at the rate of copies. The rest moves at the rate of its
    own kind. Cores share evenly.
    """
    outputs = sum(workload.expression.tensor(name).nbytes for name in workload.expression.outputs)
    inputs = least_bytes(workload) - outputs
    working_set_bytes = (inputs + outputs) / threads
    copied = (
        2 * min(inputs, outputs) / _bandwidth(limits, working_set_bytes, lambda entry: entry.copy)
    )
    read = max(0, inputs - outputs) / _bandwidth(
        limits, working_set_bytes, lambda entry: entry.read
    )
    written = max(0, outputs - inputs) / _bandwidth(
        limits, working_set_bytes, lambda entry: entry.write
    )
    return (copied + read + written) / threads


def _bandwidth(
    limits: Limits, working_set_bytes: float, kind: Callable[[Bandwidth], float]
) -> float:
    """Interpolated over the logarithm of the working set."""
    table = limits.bandwidth
    if working_set_bytes <= table[0].working_set_bytes:
        return kind(table[0])
    for low, high in pairwise(table):
        if working_set_bytes <= high.working_set_bytes:
            part = log2(working_set_bytes / low.working_set_bytes) / log2(
                high.working_set_bytes / low.working_set_bytes
            )
            return kind(low) + part * (kind(high) - kind(low))
    return kind(table[-1])


def _instructions(expression: Expression, target: Target) -> tuple[float, float]:
    """Count vector instructions of all stages, and those that add a product to a sum.

    Loads, stores and indices are not counted. An instruction that multiplies and adds
    several elements of a vector lane counts as a part for each.
    """
    rate = relative_rate(expression.inputs[0].dtype, target) if expression.inputs else 1.0
    matters = live_conditions(expression)
    counts = [
        _stage_instructions(stage, target, rate, matters.get(stage.name, ()))
        for stage in expression.stages
    ]
    return sum(count for count, _ in counts), sum(products for _, products in counts)


def _stage_instructions(
    stage: Stage, target: Target, rate: float, matters: Sequence[Scalar]
) -> tuple[float, float]:
    axes = (*stage.axes, *stage.reduce_axes)
    points = stage.points * live_fraction(stage, matters)
    rows = rows_from_data(stage)
    term = term_predicates(stage)[1] if rows is None else rows.body
    per_point: float = _weight(term, axes[-1].name if axes else "")
    products = 0.0
    if stage.reducer is not None:
        fused = stage.reducer == "sum" and isinstance(term, Binary) and term.op == "mul"
        per_point += 0 if fused else 1
        products = float(fused)
        if factors(stage) is not None:
            per_point = products = 1 / rate
    dtype = stage.accumulator if stage.reducer is not None else stage.dtype
    vectors = points / (target.vector_bytes // max(4, DTYPE_BYTES[dtype]))
    return vectors * per_point, vectors * products


def _weight(node: Scalar, along: str) -> int:
    """Instructions for one point of a scalar tree.

    `along` is the axis whose points lie in a vector. A divisor that is the same for all
    of them is inverted once.
    """
    match node:
        case Read():
            return 0
        case Binary(op="div", lhs=lhs, rhs=rhs) if all(
            not (isinstance(part, Var) and part.name == along) for part in walk(rhs)
        ):
            return 1 + _weight(lhs, along)
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return COST.get(op, 1) + _weight(lhs, along) + _weight(rhs, along)
        case Unary(op=op, arg=arg):
            return COST.get(op, 1) + _weight(arg, along)
        case Select(cond=cond, then=then, other=other):
            return 1 + _weight(cond, along) + _weight(then, along) + _weight(other, along)
        case Cast(arg=arg):
            return 1 + _weight(arg, along)
        case _:
            return 0

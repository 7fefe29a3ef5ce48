"""The workloads of a graph: one for each distinct kernel, with the number of its calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tuner.models.graph import Graph
from tuner.models.nodes import calls
from tuner.spaces.rewrite.algorithm import has_fast_rewritings
from tuner.spaces.rewrite.stages import inlined_within_bounds
from tuner.target.target import Target
from tuner.workload.expression import Expression
from tuner.workload.keys import workload_key
from tuner.workload.renaming import rename_reads
from tuner.workload.spec import workload_from_expression
from tuner.workload.workload import Numerics, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWorkload:
    """A workload and how often the model calls its kernel."""

    workload: Workload
    calls: int  # in one call of the model
    # Keys of the workloads whose work a call of it does, once each; empty for a workload
    # that the model cannot do without.
    instead_of: tuple[str, ...] = ()
    # Keys of the workloads that have to be called beside it for that, once each.
    beside: tuple[str, ...] = ()


def workload_of(
    node: Expression, graph: Graph, constants: Collection[str] = frozenset()
) -> Workload:
    """The node's workload. Inputs that are constants of the model are declared constant, and
    those of these names, which the graph does not have yet.

    So their packing can be done before the first call. Tensors are named by position:
    similar kernels then have knobs of the same names and can start from each other's
    configs. The numerics are those that the graph has for the node.
    """
    numerics: Numerics = "fast" if node.outputs[0] in graph.fast else "strict"
    names = {tensor.name: f"x{number}" for number, tensor in enumerate(node.inputs)}
    declared = [
        names[tensor.name]
        for tensor in node.inputs
        if tensor.name in constants or graph.root(tensor.name) in graph.constants
    ]
    plain = inlined_within_bounds(node)
    names |= {stage.name: f"s{number}" for number, stage in enumerate(plain.stages)}
    names |= {name: f"y{number}" for number, name in enumerate(node.outputs)}
    expression = replace(
        plain,
        inputs=tuple(replace(tensor, name=names[tensor.name]) for tensor in plain.inputs),
        stages=tuple(
            replace(stage, name=names[stage.name], body=rename_reads(stage.body, names))
            for stage in plain.stages
        ),
        outputs=tuple(names[name] for name in plain.outputs),
    )
    return workload_from_expression(expression, declared, numerics)


def workloads_of(graph: Graph) -> Sequence[ModelWorkload]:
    """The distinct workloads, in the order in which the model first calls them."""
    distinct: dict[str, Workload] = {}
    counts: dict[str, int] = {}
    for node, repeated in calls(graph.nodes):
        workload = workload_of(node, graph)
        distinct.setdefault(workload.key, workload)
        counts[workload.key] = counts.get(workload.key, 0) + repeated
    return [
        ModelWorkload(workload=workload, calls=counts[key]) for key, workload in distinct.items()
    ]


def all_fast(graph: Graph, target: Target) -> Graph:
    """The graph with each node under fast numerics for which these add an algorithm."""
    strict = replace(graph, fast=frozenset())
    fast = frozenset(
        node.outputs[0]
        for node in graph.expressions
        if has_fast_rewritings(workload_of(node, strict).expression, target.isa)
    )
    return replace(graph, fast=fast)


def fast_switches(graph: Graph) -> dict[str, tuple[str, ...]]:
    """The workloads of the nodes under fast numerics, by their first outputs, in order."""
    return {
        node.outputs[0]: (workload_of(node, graph).key,)
        for node in graph.expressions
        if node.outputs[0] in graph.fast
    }


def with_fast_variants(graph: Graph, target: Target) -> Sequence[ModelWorkload]:
    """The workloads of the graph under strict numerics, then those that fast numerics adds."""
    strict = workloads_of(replace(graph, fast=frozenset()))
    keys = {part.workload.key for part in strict}
    fast = [part for part in workloads_of(all_fast(graph, target)) if part.workload.key not in keys]
    return [*strict, *(replace(part, instead_of=(strict_key(part.workload),)) for part in fast)]


def strict_key(workload: Workload) -> str:
    """The key of the same workload under strict numerics."""
    return workload_key(workload.expression, workload.constants, "strict")

"""Finds which nodes of a model are computed fast: both variants in one library, measured.

Times are those of the nodes within the model, errors those of the library's outputs
against the evaluation of the graph in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tuner.export.examples import example_inputs
from tuner.export.kernel import ExportKernel
from tuner.export.library import function_of
from tuner.models.arrays import Array
from tuner.models.executors.library_calls import LibraryCalls
from tuner.models.files.input_values import InputValues
from tuner.models.graph import Graph
from tuner.models.library.library import ModelNumbers, model_kernel
from tuner.models.reference.check_inputs import check_inputs
from tuner.models.reference.evaluation import evaluate_outputs
from tuner.models.tuning.numerics import NodeTimes, NumericsChoice, NumericsPolicy, choose_numerics
from tuner.models.workloads import all_fast, fast_switches, workload_of
from tuner.runtime.link import link, toolchain_for
from tuner.scratch import temporary_folder
from tuner.target.target import Target
from tuner.workload.arrays import numpy_dtype
from tuner.workload.expression import Expression

_SYMBOL = "switched"


def with_numerics(
    graph: Graph,
    kernels: Mapping[str, ExportKernel],
    target: Target,
    threads: int,
    policy: NumericsPolicy,
    machine: LibraryCalls,
    values: InputValues,
) -> tuple[Graph, NumericsChoice | None]:
    """The graph with the cheapest numerics within the policy's bound, and what was tried.

    `kernels` holds strict kernels, and fast ones of the nodes that may be fast; without
    any there is no choice. `values` are those of inputs that were given. Raises LinkError,
    ModelRefused.
    """
    offered = all_fast(graph, target)
    fast = frozenset(
        node.outputs[0]
        for node in offered.expressions
        if node.outputs[0] in offered.fast and workload_of(node, offered).key in kernels
    )
    if not fast:
        return graph, None
    offered = replace(graph, fast=fast)
    switches = fast_switches(offered)
    built = model_kernel(
        graph,
        kernels,
        target,
        threads,
        _SYMBOL,
        ModelNumbers(),
        profiled=True,
        switches=switches,
        pack=machine.packed,
    )
    names = tuple(switches)
    inputs = [check_inputs(graph, values, seed) for seed in (0, 1)]
    inputs.append(example_arrays(built)[: len(graph.inputs)])
    expected = [evaluate_outputs(graph, given) for given in inputs]
    with temporary_folder("tuner-scratch-model-") as folder:
        path = folder / "switched.so"
        path.write_bytes(link("switched", [function_of(built)], toolchain=toolchain_for(target)))

        def measure(choices: Sequence[frozenset[str]]) -> Sequence[float]:
            rows = [[name in choice for name in names] for choice in choices]
            return machine.errors(path, _SYMBOL, rows, inputs, expected)

        labels = {node.outputs[0]: _label(node) for node in graph.expressions}
        steps = [node.outputs[0] for node in graph.expressions]
        rows = [[switch] * len(names) for switch in (0, 1)]
        spent = machine.spent(path, _SYMBOL, inputs[0], rows)
        strict_s, fast_s = (dict(zip(steps, row.steps, strict=True)) for row in spent)
        nodes = {
            name: NodeTimes(label=labels[name], strict_s=strict_s[name], fast_s=fast_s[name])
            for name in names
        }
        others_s = sum(time_s for name, time_s in strict_s.items() if name not in fast)
        choice = choose_numerics(nodes, others_s, policy.bound(graph), measure)
    return replace(graph, fast=choice.chosen.fast), choice


def example_arrays(built: ExportKernel) -> list[Array]:
    """The inputs of the examples, each in its dtype."""
    return [
        np.asarray(array, numpy_dtype(argument.dtype))
        for argument, array in zip(built.inputs, example_inputs(built), strict=True)
    ]


def _label(node: Expression) -> str:
    shapes = ("×".join(map(str, tensor.shape)) for tensor in node.inputs[:2])
    return " ".join((node.name, *shapes))

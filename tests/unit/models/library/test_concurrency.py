"""Nodes side by side: which ones, and that the library computes the same by them."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from benchmarks.models.race import loaded
from tests.support import onnx_networks as nets
from tests.support.depth import thinned
from tests.support.model_kernels import compiled
from tests.support.targets import host_target
from tuner.export.library import export_library
from tuner.models.executors.confined_calls import ConfinedCalls
from tuner.models.executors.cpu_executor import CpuExecutor
from tuner.models.graph import Graph
from tuner.models.library.concurrency import (
    FORK_S,
    LONGEST,
    Fork,
    forks_of,
    is_sequential,
    node_seconds,
)
from tuner.models.library.library import ModelNumbers, model_kernel
from tuner.models.library.memory import plan_memory
from tuner.models.nodes import Scan, reads_of
from tuner.models.reading import read_graph
from tuner.models.workloads import workloads_of

MODELS = {
    "perceptron": nets.perceptron(),
    "resnet": nets.resnet(size=16, width=8),
    "bert": nets.bert(),
    "tagger": nets.tagger(),
}
BRANCHED = ("resnet", "bert", "tagger")


def graph_of(name: str) -> Graph:
    return read_graph(nets.serialized(MODELS[name]), {})


def all_forks(graph: Graph, threads: int = 2) -> tuple[Fork, ...]:
    """Those of kernels that gain nothing by several threads."""
    seconds = [1.0] * len(graph.nodes)
    return forks_of(graph, seconds, seconds, threads)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("name", BRANCHED)
def test_no_lane_needs_what_another_computes(name: str, threads: int) -> None:
    graph = graph_of(name)
    forks = all_forks(graph, threads)
    assert forks
    for fork in forks:
        assert 2 <= len(fork.lanes) <= threads and fork.end - fork.start <= LONGEST
        positions = sorted(position for lane in fork.lanes for position in lane)
        assert positions == list(range(fork.start, fork.end))
        for lane in fork.lanes:
            others = set(positions) - set(lane)
            written = {graph.root(name) for other in others for name in graph.nodes[other].outputs}
            read = {graph.root(name) for own in lane for name in reads_of(graph.nodes[own])}
            assert not read & written


def test_both_directions_of_a_recurrent_layer_have_a_lane() -> None:
    graph = graph_of("tagger")
    scans = {place for place, node in enumerate(graph.nodes) if isinstance(node, Scan)}
    lanes = [{*lane} & scans for fork in all_forks(graph) for lane in fork.lanes]
    assert sum(map(bool, lanes)) >= 2


def test_what_threads_share_well_is_not_forked() -> None:
    graph = graph_of("tagger")
    count = len(graph.nodes)
    assert forks_of(graph, [0.5] * count, [1.0] * count, 2) == ()
    tiny = [FORK_S / count / 10] * count
    assert forks_of(graph, tiny, tiny, 2) == ()


def test_a_chain_has_nothing_to_fork() -> None:
    graph = graph_of("perceptron")
    assert is_sequential(graph) and all_forks(graph) == ()
    assert not is_sequential(graph_of("tagger"))


def test_seconds_of_a_node_are_those_of_its_expressions() -> None:
    graph = graph_of("tagger")
    count = len(graph.expressions)
    seconds = node_seconds(graph, [1.0] * count)
    assert len(seconds) == len(graph.nodes) and sum(seconds) == count


@pytest.mark.parametrize("name", BRANCHED)
def test_nothing_of_a_fork_shares_memory(name: str) -> None:
    graph = graph_of(name)
    forks = all_forks(graph)
    plan = plan_memory(graph, forks=forks)
    for fork in forks:
        nodes = [graph.nodes[position] for position in range(fork.start, fork.end)]
        used = {graph.root(tensor) for node in nodes for tensor in (*reads_of(node), *node.outputs)}
        ranges = sorted(
            (place.position, place.position + graph.tensor(tensor).nbytes)
            for tensor in used
            if (place := plan.places[tensor]).kind == "arena"
        )
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))


@pytest.mark.slow
def test_the_executor_forks_only_what_is_faster() -> None:
    """By measured times, so that either answer is right; a chain is not measured at all."""
    cores = sorted(os.sched_getaffinity(0))
    executor = CpuExecutor(ConfinedCalls(cores))
    for name in ("perceptron", "tagger"):
        graph = graph_of(name)
        kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
        inputs = [*nets.feeds(MODELS[name]).values()]
        chosen = executor.concurrency(graph, kernels, host_target(), 2, inputs)
        assert executor.concurrency(graph, kernels, host_target(), 1, inputs) is None
        if chosen is None:
            continue
        assert name == "tagger" and chosen.forks
        assert chosen.concurrent_s < chosen.sequential_s and "side by side" in chosen.summary


@pytest.mark.parametrize("name", thinned(BRANCHED, 1, pytest.mark.slow))
def test_a_library_with_lanes_computes_what_onnx_says(name: str, tmp_path: Path) -> None:
    """Again and again, and in two calls at a time, of which one finds the pool busy."""
    graph = graph_of(name)
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    symbol = f"run_lanes_{name}"
    kernel = model_kernel(
        graph, kernels, host_target(), 2, symbol, ModelNumbers(), forks=all_forks(graph)
    )
    export_library([kernel], tmp_path / "out", f"lanes_{name}")
    run = getattr(loaded(tmp_path / "out", f"lanes_{name}"), symbol)
    given = nets.feeds(MODELS[name])
    (expected,) = ReferenceEvaluator(MODELS[name]).run(None, given)
    with ThreadPoolExecutor(2) as callers:
        for got in callers.map(lambda _: run(*given.values()), range(40)):
            assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()

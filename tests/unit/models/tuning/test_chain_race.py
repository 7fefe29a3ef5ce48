"""The race of chains inside their model: what is chosen, and that the library stays right."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support import onnx_networks as nets
from tests.support.graph_values import graph_outputs
from tests.support.measured_target import with_rates
from tests.support.model_kernels import compiled, kernel_of
from tests.support.targets import host_target
from tuner.export.kernel import ExportKernel
from tuner.export.library import function_of
from tuner.models.arrays import Array
from tuner.models.executors.confined_calls import ConfinedCalls
from tuner.models.executors.profile import Spent
from tuner.models.graph import Graph
from tuner.models.library.library import ModelNumbers, model_kernel
from tuner.models.passes.chains import chains_of
from tuner.models.passes.siblings import siblings_of
from tuner.models.passes.substitutions import (
    Substitution,
    substitution_workloads,
    with_substitutions,
)
from tuner.models.reading import read_graph
from tuner.models.tuning.chain_race import ChainRace, affordable_chains, race_chains
from tuner.models.workloads import workloads_of
from tuner.runtime.link import link
from tuner.runtime.loader import Library
from tuner.spaces.by_target import cpu_space
from tuner.target.target import Target
from tuner.workload.workload import Workload

X = np.random.default_rng(3).standard_normal((4, 16)).astype(np.float32)
CORES = sorted(os.sched_getaffinity(0))[:1]
Kernels = dict[str, ExportKernel]


def machine() -> Target:
    """Whose memory is slow."""
    return with_rates(host_target(), bytes_per_s=1e9, flops=1e12)


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Five products, the first two and the last three a chain each, then a softmax."""
    return read_graph(nets.serialized(nets.perceptron(rows=4, sizes=(16, 32, 8, 40, 40, 24))), {})


@pytest.fixture(scope="module")
def chains(graph: Graph) -> tuple[Substitution, ...]:
    both = chains_of(graph, machine())
    assert [len(chain.parts) for chain in both] == [3, 2]
    return both


def fused(workload: Workload) -> ExportKernel:
    """A kernel that computes all in the tiles of the last."""
    space = cpu_space(workload, host_target(), 1)
    number = next(n for n, name in enumerate(space.sketches) if name.endswith(":fused"))
    point = np.zeros(len(space.space.knobs), np.int32)
    point[0] = number
    return kernel_of(workload, space.space.config(point))


@pytest.fixture(scope="module")
def kernels(graph: Graph, chains: tuple[Substitution, ...]) -> Kernels:
    made = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    return made | {
        part.workload.key: fused(part.workload) for part in substitution_workloads(graph, chains)
    }


class Scripted(ConfinedCalls):
    """Gives prepared times of all steps: first of the nodes apart, then of the chains."""

    def __init__(self, *answers: Sequence[Sequence[float]]) -> None:
        super().__init__(CORES)
        self.answers = [
            tuple(Spent(steps=tuple(row), whole_s=sum(row)) for row in answer) for answer in answers
        ]

    def spent(
        self,
        library: Path,
        symbol: str,
        inputs: Sequence[Array],
        settings: Sequence[Sequence[int]] | None = None,
        *,
        threads: int = 0,
        longest_s: float = 0.0,
    ) -> Sequence[Spent]:
        assert settings == [[0], [1]]
        return self.answers.pop(0)


def raced(
    graph: Graph, chains: Sequence[Substitution], kernels: Kernels, calls: ConfinedCalls
) -> ChainRace:
    race = race_chains(graph, kernels, chains, host_target(), 1, [X], calls)
    assert race is not None
    return race


# In the order of the library's steps: the first chain as one, its two products; the second as
# one, its three products; the softmax.
APART = [0.0, 3, 4, 0.0, 2, 2, 2, 1]


def test_the_faster_chain_is_one_kernel(
    graph: Graph, chains: tuple[Substitution, ...], kernels: Kernels
) -> None:
    calls = Scripted(
        [APART, [5.0, 0, 0, 7, 0, 0, 0, 1]],
        [[0.0, 3, 4, 2, 2, 2, 1], [5.0] + [0.0] * 2 + [2, 2, 2, 1]],
    )
    race = raced(graph, chains, kernels, calls)
    (chosen,) = race.chosen
    assert len(chosen.parts) == 2 and not calls.answers
    first, second = race.raced
    assert (first.apart_s, first.together_s, first.chosen) == (7, 5, True)
    assert (second.apart_s, second.together_s, second.chosen) == (6, 7, False)
    assert (race.apart_s, race.chosen_s) == (14, 12)
    assert race.summary == "1 of 2 chains of nodes are one kernel each; this gains 14.3%"
    assert [each["chosen"] for each in race.document["raced"]] == [True, False]
    assert len(with_substitutions(graph, race.chosen).nodes) == len(graph.nodes) - 1


@pytest.mark.parametrize(
    "answers",
    [
        ([APART, [6.95, 0, 0, 6, 0, 0, 0, 1]],),  # less than a hundredth
        ([APART, [5, 0, 0, 5, 0, 0, 0, 5]],),  # at the cost of what comes behind
        (
            [APART, [5.0, 0, 0, 7, 0, 0, 0, 1]],
            [[0.0, 3, 4, 2, 2, 2, 1], [5.0, 0, 0, 3, 3, 2, 1]],  # not without the other
        ),
    ],
)
def test_nodes_stay_where_chains_do_not_pay(
    graph: Graph,
    chains: tuple[Substitution, ...],
    kernels: Kernels,
    answers: Sequence[Sequence[Sequence[float]]],
) -> None:
    race = raced(graph, chains, kernels, Scripted(*answers))
    assert race.chosen == () and race.chosen_s == race.apart_s == 14
    assert not any(each.chosen for each in race.raced)
    assert race.summary == "none of 2 chains of nodes is faster as one kernel"


def test_chains_without_kernels_do_not_race(
    graph: Graph, chains: tuple[Substitution, ...], kernels: Kernels
) -> None:
    needed = {part.workload.key: kernels[part.workload.key] for part in workloads_of(graph)}
    calls = ConfinedCalls(CORES)
    assert race_chains(graph, needed, chains, host_target(), 1, [X], calls) is None


def test_a_race_of_real_kernels_leaves_a_right_model(
    graph: Graph, chains: tuple[Substitution, ...], kernels: Kernels, tmp_path: Path
) -> None:
    race = raced(graph, chains, kernels, ConfinedCalls(CORES))
    assert all(each.apart_s > 0 and each.together_s > 0 for each in race.raced)
    assert 0 < race.chosen_s <= race.apart_s
    for number, some in enumerate(((), chains[:1], chains)):
        fewer = with_substitutions(graph, some)
        built = model_kernel(fewer, kernels, host_target(), 1, f"m{number}", ModelNumbers())
        path = tmp_path / f"m{number}.so"
        path.write_bytes(link("m", [function_of(built)]))
        got = Library(path).function(f"m{number}")(X)
        np.testing.assert_allclose(got, graph_outputs(graph, [X])[0], rtol=1e-5)


@pytest.mark.slow
def test_siblings_race_with_who_reads_them(tmp_path: Path) -> None:
    graph = read_graph(nets.serialized(nets.bert(words=4, width=16, heads=2)), {})
    (group,) = siblings_of(graph, machine())
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    ids = np.array([[1, 2, 3, 4]])
    lone = kernels | {(one := group.workloads(graph)[0]).key: compiled(one, None)}
    calls = ConfinedCalls(CORES)
    assert race_chains(graph, lone, [group], host_target(), 1, [ids], calls) is None
    kernels |= {made.key: compiled(made, None) for made in group.workloads(graph)}
    race = race_chains(graph, kernels, [group], host_target(), 1, [ids], calls)
    assert race is not None
    (raced,) = race.raced
    assert raced.kind == "siblings" and raced.apart_s > 0 and raced.together_s > 0
    assert raced.workload == group.workloads(graph)[0].key
    assert race.document["raced"][0]["kind"] == "siblings" and "siblings" in race.summary
    built = model_kernel(
        with_substitutions(graph, [group]), kernels, host_target(), 1, "m", ModelNumbers()
    )
    path = tmp_path / "m.so"
    path.write_bytes(link("m", [function_of(built)]))
    got = Library(path).function("m")(ids)
    np.testing.assert_allclose(got, graph_outputs(graph, [ids])[0], rtol=1e-4, atol=1e-5)


def test_chains_are_offered_where_there_is_time_to_compare_them(graph: Graph) -> None:
    assert affordable_chains(graph, machine(), None)
    assert affordable_chains(graph, machine(), 1000.0)
    assert affordable_chains(graph, machine(), 30.0) == ()

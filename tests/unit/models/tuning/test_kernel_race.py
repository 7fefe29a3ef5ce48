"""The race of kernels inside their model: who takes part, what is chosen, what it computes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support import onnx_networks as nets
from tests.support.graph_values import graph_outputs
from tests.support.model_kernels import compiled
from tests.support.targets import host_target
from tuner.export.kernel import ExportKernel
from tuner.export.library import function_of
from tuner.models.arrays import Array
from tuner.models.executors.confined_calls import ConfinedCalls
from tuner.models.executors.profile import Spent
from tuner.models.graph import Graph
from tuner.models.library.library import ModelNumbers, model_kernel
from tuner.models.reading import read_graph
from tuner.models.tuning.kernel_race import KernelRace, heavy, is_affordable, race_inside, race_s
from tuner.models.workloads import workload_of, workloads_of
from tuner.runtime.link import link
from tuner.runtime.loader import Library

X = np.random.default_rng(3).standard_normal((2, 16)).astype(np.float32)
CORES = sorted(os.sched_getaffinity(0))[:1]
Kernels = dict[str, ExportKernel]


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Two products, then a softmax."""
    return read_graph(nets.serialized(nets.perceptron(rows=2, sizes=(16, 32, 8))), {})


@pytest.fixture(scope="module")
def kernels(graph: Graph) -> Kernels:
    """The first takes 80% of the time by itself, the second 15%, the softmax 5%."""
    made = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    shares = dict(zip(made, (80.0, 15.0, 5.0), strict=True))
    return {key: replace(kernel, median_s=shares[key]) for key, kernel in made.items()}


@pytest.fixture(scope="module")
def others(graph: Graph) -> dict[str, list[ExportKernel]]:
    """Two more kernels of the first product, one of the others; trials 11, 12."""
    made = {}
    for number, part in enumerate(workloads_of(graph)):
        made[part.workload.key] = [
            replace(compiled(part.workload, seed), provenance={"trial": 10 + seed})
            for seed in ((1, 2) if number == 0 else (1,))
        ]
    return made


class Scripted(ConfinedCalls):
    """Gives prepared times, and notes the settings for which it is asked."""

    def __init__(self, *answers: Sequence[Sequence[float]]) -> None:
        super().__init__(CORES)
        self.answers = [
            tuple(Spent(steps=tuple(row), whole_s=sum(row)) for row in answer) for answer in answers
        ]
        self.settings: list[list[list[int]]] = []

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
        assert settings is not None
        self.settings.append([list(row) for row in settings])
        return self.answers.pop(0)


def raced(
    graph: Graph, kernels: Kernels, others: dict[str, list[ExportKernel]], measure: Scripted
) -> KernelRace:
    race = race_inside(graph, kernels, others, host_target(), 1, [X], measure)
    assert race is not None
    return race


def test_the_fastest_inside_is_chosen(
    graph: Graph, kernels: Kernels, others: dict[str, list[ExportKernel]]
) -> None:
    measure = Scripted(
        [[10, 4, 2], [9, 5, 2], [8, 4, 2]],  # all promoted; the first others; the second ones
        [[10, 4, 2], [8.5, 4, 2]],
    )
    race = raced(graph, kernels, others, measure)
    first, second = (workload_of(node, graph).key for node in graph.expressions[:2])
    assert measure.settings == [[[0, 0], [1, 1], [2, 0]], [[0, 0], [2, 0]]]
    (changed,) = race.changed
    assert changed.workload.key == first
    assert (changed.promoted, changed.chosen) == ("default", "trial 12")
    assert (changed.promoted_s, changed.chosen_s, changed.saved_s) == (10, 8.5, 1.5)
    assert race.kernels[first] is others[first][1]
    assert race.kernels[second] is kernels[second]
    assert (race.raced, race.promoted_s, race.chosen_s) == (2, 16, 14.5)
    assert "gains 9.4%" in race.summary
    assert [entry["chosen"] for entry in race.document["changed"]] == ["trial 12"]


@pytest.mark.parametrize(
    "answers",
    [
        ([[10, 4, 2], [9.95, 4, 2], [10, 4, 2]],),  # less than a hundredth
        ([[10, 4, 2], [9, 4, 2], [10, 4, 2]], [[10, 4, 2], [9, 4, 3.5]]),  # at others' cost
    ],
)
def test_the_promoted_kernels_stay_where_others_do_not_pay(
    graph: Graph,
    kernels: Kernels,
    others: dict[str, list[ExportKernel]],
    answers: Sequence[Sequence[Sequence[float]]],
) -> None:
    race = raced(graph, kernels, others, Scripted(*answers))
    assert race.changed == () and race.kernels == kernels
    assert race.chosen_s == race.promoted_s
    assert "no other" in race.summary


def test_only_heavy_kernels_with_others_race(
    graph: Graph, kernels: Kernels, others: dict[str, list[ExportKernel]]
) -> None:
    keys = [part.workload.key for part in workloads_of(graph)]
    assert [part.workload.key for part in heavy(graph, kernels, others)] == keys[:2]
    some = {**others, keys[0]: ()}
    assert [part.workload.key for part in heavy(graph, kernels, some)] == keys[1:2]
    assert race_inside(graph, kernels, {}, host_target(), 1, [X], ConfinedCalls(CORES)) is None


def test_a_race_of_real_kernels_leaves_a_right_model(
    graph: Graph, kernels: Kernels, others: dict[str, list[ExportKernel]], tmp_path: Path
) -> None:
    race = race_inside(graph, kernels, others, host_target(), 1, [X], ConfinedCalls(CORES))
    assert race is not None and race.raced == 2
    assert 0 < race.chosen_s <= race.promoted_s
    assert set(race.kernels) == set(kernels)
    entrants = [(key, kernel) for key, field in others.items() for kernel in field]
    for number, (key, kernel) in enumerate(entrants):
        chosen = {**kernels, key: kernel}
        built = model_kernel(graph, chosen, host_target(), 1, f"m{number}", ModelNumbers())
        path = tmp_path / f"m{number}.so"
        path.write_bytes(link("m", [function_of(built)]))
        got = Library(path).function(f"m{number}")(X)
        np.testing.assert_allclose(got, graph_outputs(graph, [X])[0], rtol=1e-5)


def test_a_race_has_a_tenth_of_the_time_at_most(graph: Graph) -> None:
    assert is_affordable(race_s(graph), None)
    assert is_affordable(race_s(graph), 10.01 * race_s(graph))
    assert not is_affordable(race_s(graph), 9.9 * race_s(graph))

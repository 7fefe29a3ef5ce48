"""A search learns from what compilers say: kernels that spill are left alone, and told
again it proposes the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.support.spaces import shared_space
from tests.support.synthetic_spaces import CONDITIONS
from tests.support.targets import SM_90
from tuner.measure.gpu.resources import Resources
from tuner.measure.outcome import Timed, Trial
from tuner.search.searcher import Searcher
from tuner.spaces.core.space import Config
from tuner.spaces.core.target_space import TargetSpace
from tuner.workers.jobs.search import searcher_for


def space() -> TargetSpace[Any]:
    return shared_space("matmul:M=512,N=512,K=512", SM_90)


def spills(config: Config) -> bool:
    """With copies through registers: what this compiler makes of them."""
    return config.get("C.tile.pipeline") == "registers"


def measured(number: int, config: Config) -> Trial:
    """All alike fast."""
    many = spills(config)
    resources = Resources(
        registers=128 if many else 80, spill_bytes=400 * many, shared_bytes=16384, resident_warps=16
    )
    outcome = Timed(
        samples_s=(1e-3,), max_rel_error=0.0, conditions=CONDITIONS, artifact=f"{number:064x}"
    )
    return Trial(number=number, config=config, outcome=outcome, resources=resources)


def played(count: int, *, says: bool, searcher: Searcher | None = None) -> list[Trial]:
    searcher = searcher or searcher_for(space(), strategy="annealing", seed=2)
    trials: list[Trial] = []
    while len(trials) < count:
        for point in searcher.ask(4):
            trial = measured(len(trials) + 1, space().space.config(point))
            trials.append(trial if says else replace(trial, resources=None))
            searcher.tell(trials[-1:])
    return trials


def test_kernels_like_those_that_spilled_are_proposed_less() -> None:
    said, silent = (
        [spills(trial.config) for trial in played(72, says=says)[24:]] for says in (True, False)
    )
    assert np.mean(said) < 0.5 * np.mean(silent), (np.mean(said), np.mean(silent))


def test_a_search_that_is_told_its_trials_again_goes_on_as_it_would_have() -> None:
    lost, again = (searcher_for(space(), strategy="annealing", seed=2) for _ in range(2))
    trials = played(40, says=True, searcher=lost)
    again.tell(trials)
    silent = searcher_for(space(), strategy="annealing", seed=2)
    silent.tell([replace(trial, resources=None) for trial in trials])
    proposed, rebuilt, other = (
        [space().space.config(point) for point in searcher.ask(8)]
        for searcher in (lost, again, silent)
    )
    assert proposed == rebuilt != other
    assert [lost.forecast(config) for config in proposed] == [
        again.forecast(config) for config in proposed
    ]

"""Optuna's TPE proposes, a tuner service measures (`pip install optuna`).

    python -m examples.external.with_optuna URL SPEC TRIALS

The key is read from TUNER_TOKEN.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import optuna

from examples.external.session import connected, key_of, new_job, report, search
from tuner.api.proposal_schemas import SpaceAnswer


class TreeParzen:
    """A categorical for the sketch, and one for each of its knobs."""

    def __init__(self, space: SpaceAnswer) -> None:
        self._sketches = {sketch.name: sketch for sketch in space.sketches}
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
        self._asked: dict[str, optuna.Trial] = {}

    def proposals(self) -> Iterator[Mapping[str, Any]]:
        while True:
            trial = self._study.ask()
            name = trial.suggest_categorical("sketch", list(self._sketches))
            config: dict[str, Any] = {"sketch": name}
            for knob in self._sketches[name].knobs:
                # A knob's value may be a list, which Optuna does not take.
                texts = [json.dumps(value) for value in knob.values]
                config[knob.name] = json.loads(
                    trial.suggest_categorical(f"{name} {knob.name}", texts)
                )
            self._asked[key_of(config)] = trial
            yield config

    def tell(self, config: Mapping[str, Any], median_s: float | None) -> None:
        trial = self._asked.pop(key_of(config))
        if median_s is None:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(trial, median_s)


def main() -> None:
    url, spec, trials = sys.argv[1:]
    with connected(url) as client:
        job = new_job(client, spec, int(trials))
        strategy = TreeParzen(client.space(job))
        search(client, job, strategy.proposals(), int(trials), strategy.tell)
        report(client, job)


if __name__ == "__main__":
    main()

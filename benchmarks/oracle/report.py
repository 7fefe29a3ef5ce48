"""How right estimates and zero-trial answers are, on what was raced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.oracle import log
from benchmarks.oracle.log import Raced, Searched
from tuner.api.estimates import describe
from tuner.cost_model.latency import Latency, LatencyModel, Measured
from tuner.cost_model.metrics import kendall_tau
from tuner.db import targets
from tuner.db.engine import open_database
from tuner.measure.statistics import disturbed
from tuner.search.regret import RegretBounds, recorded_curves, regret_curve
from tuner.target.target import Target
from tuner.workload.spec import parse_spec

WITHIN = 0.1
YARDSTICK = 8  # candidates of a search whose best is worth comparing with


def report(folder: Path) -> None:
    """Prints both, from the logs of a folder."""
    searches, races = (
        log.searches(folder / "searches.jsonl"),
        log.races(folder / "races.jsonl"),
    )
    with open_database(f"sqlite:///{folder / 'tuner.db'}", create=False).read() as session:
        target = targets.list_all(session)[-1]
    of_estimates(target, {spec: race for spec, race in races.items() if race.median_s})
    searched_races = {spec: (searches[spec], race) for spec, race in races.items() if race.rounds_s}
    of_answers(
        {spec: each for spec, each in searched_races.items() if len(each[0].seconds) >= YARDSTICK}
    )


def of_estimates(target: Target, races: Mapping[str, Raced]) -> None:
    kernels = [kernel_of(race, target) for race in races.values()]
    noisy = sum(disturbed(each.median_s, each.ci95_s) for each in kernels)
    print(f"{len(kernels)} kernels on {target.name}, {noisy} of them disturbed")
    left_out = LatencyModel(kernels).left_out()
    print(table(kernels, left_out))


def kernel_of(race: Raced, target: Target) -> Measured:
    """The fastest of a race, as a promoted kernel."""
    fastest = min(race.median_s, key=lambda name: race.median_s[name])
    return Measured(
        described=describe(parse_spec(race.spec), target, 1),
        median_s=race.median_s[fastest],
        ci95_s=race.ci95_s(fastest),
    )


def table(kernels: Sequence[Measured], left_out: Sequence[Latency]) -> str:
    """A row of each operator and one of all."""
    operators = np.array([each.described.op for each in kernels])
    true = np.array([each.median_s for each in kernels])
    said = np.array([each.median_s for each in left_out])
    inside = np.array(
        [
            low.low_s <= each.median_s <= low.high_s
            for low, each in zip(left_out, kernels, strict=True)
        ]
    )
    lines = [f"{'operator':20}{'kernels':>8}{'error':>8}{'in 10%':>8}{'covered':>8}{'tau':>7}"]
    taus: list[float] = []
    for name in [*sorted(set(operators)), "all"]:
        rows = operators == name if name != "all" else np.ones(len(true), bool)
        error = np.abs(said[rows] / true[rows] - 1)
        tau = kendall_tau(said[rows], true[rows]) if name != "all" else float(np.mean(taus))
        taus.append(tau)
        lines.append(
            f"{name:20}{rows.sum():8}{np.median(error):8.1%}{np.mean(error <= WITHIN):8.0%}"
            f"{np.mean(inside[rows]):8.0%}{tau:7.2f}"
        )
    return "\n".join(lines)


def of_answers(searched_races: Mapping[str, tuple[Searched, Raced]]) -> None:
    """The loss of the first candidate beside the best known, and how the bounds hold."""
    losses = [loss(searched, race) for searched, race in searched_races.values()]
    recorded = RegretBounds(recorded_curves()).after(1)
    assert recorded is not None, "a bound of one candidate"
    held = np.mean([each <= recorded.within for each in losses])
    print(
        f"{len(losses)} answers without a trial: half lose {np.median(losses):.1%} or less, nine "
        f"of ten {np.quantile(losses, 0.9):.1%}; {held:.0%} keep the bound of the recorded "
        f"tables, {recorded.within:.0%}, and {np.mean(bounds_kept(losses)):.0%} that of the others"
    )


def loss(searched: Searched, race: Raced) -> float:
    """Of the first candidate to the fastest of the race; one that failed is as slow as can be."""
    first = str(searched.finalists[0]["number"]) == "1" and race.median_s.get("1")
    return regret_curve([first or None], min(race.median_s.values()))[0]


def bounds_kept(losses: Sequence[float]) -> list[bool]:
    """Of each, whether it keeps the bound that searches with the losses of the others teach."""
    curves = [regret_curve([1.0 + each], 1.0) for each in losses]
    kept = []
    for place, each in enumerate(losses):
        bound = RegretBounds([*curves[:place], *curves[place + 1 :]]).after(1)
        assert bound is not None, "a bound of one candidate"
        kept.append(each <= bound.within + 1e-12)
    return kept

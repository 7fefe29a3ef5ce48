"""`tuner replay` as a user calls it: a table and a picture, the same document twice,
one clear message for what cannot be."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.cli.exits import Exit

TABLES = Path(__file__).parents[2] / "tables"
SOFTMAX = str(TABLES / "softmax.npz")
FEW = ("--seeds", "3", "--budget", "24")


def test_it_compares_the_strategies_asked_for(tuner: Callable[..., Any]) -> None:
    called = tuner("replay", SOFTMAX, *FEW, "--strategies", "annealing,random,grid")
    assert called.code == 0
    assert [line.split()[1] for line in called.out.splitlines()[1:4]] == [
        "annealing",
        "random",
        "grid",
    ]
    assert "over 3 seeds" in called.out


def test_its_document_is_the_same_each_time(tuner: Callable[..., Any]) -> None:
    first, second = (tuner("replay", SOFTMAX, *FEW, "--top", "5", "--json") for _ in range(2))
    assert first.document == second.document
    document = first.document
    assert (document["budget"], document["seeds"], document["top"]) == (24, 3, 0.05)
    (table,) = document["tables"]
    assert (
        table["configs"] == 88 and table["best_s"] < table["default_s"] and "date" in table["notes"]
    )
    assert [result["strategy"] for result in document["results"]] == [
        "annealing",
        "evolutionary",
        "random",
    ]
    for result in document["results"]:
        medians = [entry["median"] for entry in result["regret"] if entry["median"] is not None]
        assert len(result["reached"]) == 3 and medians == sorted(medians, reverse=True)


def test_it_draws_the_curves(tuner: Callable[..., Any], tmp_path: Path) -> None:
    called = tuner("replay", SOFTMAX, *FEW, "--plot", str(tmp_path / "curves.svg"))
    assert called.code == 0
    root = ElementTree.parse(tmp_path / "curves.svg").getroot()
    assert len(root.findall(".//{*}polyline")) == 3 and len(root.findall(".//{*}polygon")) == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("missing.npz",), ("missing.npz is not a recorded table",)),
        ((SOFTMAX, "--strategies", "luck"), ("unknown strategy 'luck'", "annealing")),
        ((SOFTMAX, "--strategies", "transfer"), ("at least two",)),
        ((SOFTMAX, "--strategies", ","), ("no strategy",)),
        ((SOFTMAX, SOFTMAX), ("two tables record softmax",)),
        ((SOFTMAX, "--plot", "curves.png"), ("curves.png", ".svg")),
    ],
)
def test_what_cannot_be_is_refused(
    tuner: Callable[..., Any], arguments: tuple[str, ...], says: tuple[str, ...]
) -> None:
    called = tuner("replay", *arguments)
    assert called.code == Exit.USAGE
    assert all(part in called.err for part in says), called.err


@pytest.mark.skipif(importlib.util.find_spec("optuna") is not None, reason="Optuna is installed")
def test_tpe_without_optuna_says_how_to_get_it(tuner: Callable[..., Any]) -> None:
    called = tuner("replay", SOFTMAX, "--strategies", "tpe")
    assert called.code == Exit.USAGE and "tuner[compare]" in called.err


@pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="Optuna is not installed")
def test_tpe_searches_a_table(tuner: Callable[..., Any]) -> None:
    called = tuner("replay", SOFTMAX, *FEW, "--strategies", "tpe", "--json")
    assert called.code == 0
    (result,) = called.document["results"]
    assert result["regret"][-1]["median"] < 0.5

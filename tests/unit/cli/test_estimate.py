"""`tuner estimate` on a database with kernels of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.promoted_products import EXTENTS, promote_products
from tuner.db.engine import Database, open_database
from tuner.settings import load_settings
from tuner.target.detect import parse_target

PRODUCT = "matmul:M={},N=64,K=64"


@pytest.fixture
def database(home: Path) -> Iterator[Database]:
    opened = open_database(load_settings().values.db)
    yield opened
    opened.close()


def test_figures_come_with_their_sources(tuner: Callable[..., Any], database: Database) -> None:
    promote_products(database, parse_target("cpu"))
    specs = [PRODUCT.format(rows) for rows in (EXTENTS[0], EXTENTS[0] + 1)]
    called = tuner("estimate", *specs, "--json")
    assert [item["source"] for item in called.document["items"]] == ["measured", "neighbour"]
    assert called.document["accuracy"]["kernels"] == len(EXTENTS)
    said = tuner("estimate", *specs)
    assert "measured" in said.out and "neighbour" in said.out
    assert f"of {len(EXTENTS)} kernels, each left out" in said.err


def test_an_empty_database_says_what_would_help(
    tuner: Callable[..., Any], database: Database
) -> None:
    called = tuner("estimate", PRODUCT.format(5))
    assert called.code == 2 and "tune some workloads there first" in called.err


def test_a_model_and_a_spec_are_not_mixed(tuner: Callable[..., Any], database: Database) -> None:
    called = tuner("estimate", "net.onnx", PRODUCT.format(5))
    assert called.code == 2 and "by itself" in called.err

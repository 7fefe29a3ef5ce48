"""`tuner ci`: what it prints and how it exits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import new_database
from tests.support.promoted_products import EXTENTS, promote_products
from tuner.db.engine import Database
from tuner.settings import load_settings
from tuner.target.detect import parse_target


@pytest.fixture
def database(home: Path) -> Iterator[Database]:
    opened = new_database(load_settings().values.db)
    promote_products(opened, parse_target("cpu"))
    yield opened
    opened.close()


def test_kernels_whose_artifacts_are_gone_fail_the_build(
    tuner: Callable[..., Any], database: Database
) -> None:
    called = tuner("ci", "--json")
    assert called.code == 6
    items = called.document["items"]
    assert [item["verdict"] for item in items] == ["failed"] * len(EXTENTS)
    assert all(item["now"] is None and "artifact" in item["error"] for item in items)
    assert items[0]["recorded"]["ci95_s"][0] < items[0]["recorded"]["median_s"]


def test_the_table_ends_with_the_counts(tuner: Callable[..., Any], database: Database) -> None:
    called = tuner("ci", "matmul:M=48,N=64,K=64")
    assert called.code == 6 and called.out.splitlines()[-1] == "1 failed"
    assert "warning:" in called.err


def test_an_empty_database_is_no_success(tuner: Callable[..., Any], home: Path) -> None:
    called = tuner("ci")
    assert called.code == 2 and "nothing to check" in called.err


@pytest.mark.parametrize("tolerance", ["inf", "1e999"])
def test_a_tolerance_that_passes_any_kernel_is_refused(
    tuner: Callable[..., Any], home: Path, tolerance: str
) -> None:
    called = tuner("ci", "--tolerance", tolerance)
    assert called.code == 2 and "--tolerance inf passes any kernel" in called.err

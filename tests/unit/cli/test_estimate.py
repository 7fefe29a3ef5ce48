"""`tuner estimate` on a database with kernels of this machine."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import new_database
from tests.support.promoted_products import EXTENTS, promote_products
from tuner.api.estimates import Estimator
from tuner.api.learning import learning_plan
from tuner.db.engine import Database
from tuner.errors import UsageError
from tuner.settings import load_settings
from tuner.target.detect import parse_target
from tuner.workload.spec import parse_spec

PRODUCT = "matmul:M={},N=64,K=64"


@pytest.fixture
def database(home: Path) -> Iterator[Database]:
    opened = new_database(load_settings().values.db)
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
    assert called.code == 2 and "'tuner tune SPEC… --threads 1'" in called.err
    called = tuner("estimate", PRODUCT.format(5), "--target", "cpu:neoverse-n1")
    assert called.code == 2 and "--threads 1 --target cpu:neoverse-n1'" in called.err


def test_what_is_tuned_first_needs_time_and_something_to_tune(
    tuner: Callable[..., Any], database: Database
) -> None:
    called = tuner("estimate", PRODUCT.format(5), "--tune", "5")
    assert called.code == 2 and "5 s are too few to tune a workload; give 20 or more" in called.err
    called = tuner("estimate", PRODUCT.format(5), "--trials", "5")
    assert called.code == 2 and "give --tune SECONDS with it" in called.err


@pytest.mark.parametrize(("seconds", "says"), [(math.nan, "too few"), (math.inf, "too many")])
def test_budgets_that_are_no_time_are_refused(
    database: Database, seconds: float, says: str
) -> None:
    workload, target = parse_spec(PRODUCT.format(5)), parse_target("cpu")
    with pytest.raises(UsageError, match=says):
        learning_plan(Estimator(database), [workload], [1.0], target, 1, seconds)


def test_a_model_and_a_spec_are_not_mixed(tuner: Callable[..., Any], database: Database) -> None:
    called = tuner("estimate", "net.onnx", PRODUCT.format(5))
    assert called.code == 2 and "by itself" in called.err


def test_the_table_has_a_row_for_each_workload(
    tuner: Callable[..., Any], database: Database, tmp_path: Path
) -> None:
    promote_products(database, parse_target("cpu"))
    specs = [PRODUCT.format(rows) for rows in (EXTENTS[0], EXTENTS[0] + 1)]
    for suffix in ("json", "csv"):
        tuner("estimate", *specs, "-o", str(tmp_path / f"table.{suffix}"))
    items = json.loads((tmp_path / "table.json").read_text())["items"]
    assert [item["source"] for item in items] == ["measured", "neighbour"]
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["median_s"]) for row in rows] == [item["median_s"] for item in items]
    assert [row["spec"] for row in rows] == [item["spec"] for item in items]


def test_a_table_may_be_parquet(
    tuner: Callable[..., Any], database: Database, tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    promote_products(database, parse_target("cpu"))
    path = tmp_path / "table.parquet"
    called = tuner("estimate", PRODUCT.format(EXTENTS[0]), "-o", str(path))
    assert called.code == 0, called.err
    (row,) = parquet.read_table(path).to_pylist()
    assert row["source"] == "measured" and row["threads"] == 1 and row["median_s"] > 0


def test_the_table_of_nothing_has_its_columns(
    tuner: Callable[..., Any], database: Database, tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [1])
    node = onnx.helper.make_node("Shape", ["x"], ["y"])
    opset = [onnx.helper.make_opsetid("", 13)]
    graph = onnx.helper.make_graph([node], "nothing", [x], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "m.onnx")
    called = tuner("estimate", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "table.csv"))
    assert called.code == 0 and "all calls" in called.out
    assert (tmp_path / "table.csv").read_text().startswith("workload,spec,target,threads,calls,")


def test_a_table_of_another_kind_is_refused(tuner: Callable[..., Any], database: Database) -> None:
    called = tuner("estimate", PRODUCT.format(5), "-o", "table.xlsx")
    assert called.code == 2 and ".json, .csv, .parquet" in called.err

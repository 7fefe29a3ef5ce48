"""MetaSchedule's own records imported: replayed, verified, raced, promoted; what
crashes or lies is an answer, not a kernel."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms

from tests.support.targets import host_target
from tuner.app.export.kernels import chosen_kernels
from tuner.app.export.schedules import export_schedules
from tuner.app.kernels.kernel import Kernel
from tuner.app.races.metaschedule import import_database
from tuner.db import kernels, workloads
from tuner.db.engine import Database, open_database
from tuner.export.artifacts import ArtifactStore
from tuner.lowering.importers.records import RECORDS, WORKLOADS
from tuner.settings import Settings
from tuner.workload.spec import from_document

pytestmark = pytest.mark.slow

MACHINE = host_target()
ROWS, DEPTH, COLUMNS = 24, 64, 48


def product() -> tvm.IRModule:
    a = te.placeholder((ROWS, DEPTH), name="A")
    b = te.placeholder((DEPTH, COLUMNS), name="B")
    k = te.reduce_axis((0, DEPTH), name="k")
    c = te.compute((ROWS, COLUMNS), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return tvm.IRModule({"main": te.create_prim_func([a, b, c])})


def scheduled(mod: tvm.IRModule) -> list[tvm.s_tir.Schedule]:
    """Two schedules by hand: the reduction outside its columns, and with the columns vectorised."""
    made = []
    for width in (None, 16):
        schedule = tvm.s_tir.Schedule(mod)
        i, j, k = schedule.get_loops(schedule.get_sblock("C", func_name="main"))
        if width is not None:
            j, inner = schedule.split(j, [None, width])
            schedule.reorder(i, j, k, inner)
            schedule.vectorize(inner)
        else:
            schedule.reorder(i, k, j)
        made.append(schedule)
    return made


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    mod = product()
    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    store = ms.database.JSONDatabase(str(folder / WORKLOADS), str(folder / RECORDS))
    workload = store.commit_workload(mod)
    arguments = ms.arg_info.ArgInfo.from_prim_func(mod["main"])
    for schedule in scheduled(mod):
        store.commit_tuning_record(
            ms.database.TuningRecord(schedule.trace, workload, [1e-9], target, arguments)
        )
    return folder


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return open_database(f"sqlite:///{tmp_path / 'tuner.db'}")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(artifacts=tmp_path / "artifacts", data_dir=tmp_path, run_timeout_s=30.0)


def broken(records: Path, folder: Path) -> Path:
    """The same with five bad records: a loop that is not there, a wrong graph of the
    right form, and what reading refuses."""
    lines = (records / RECORDS).read_text().splitlines()
    first = json.loads(lines[0])
    first[1][0][0][1][1] = ["b99"]
    cut = json.loads(lines[0])
    cut[1][0][0] = [["Tensorize", ["b0"], ["x"], []]]
    (folder / WORKLOADS).write_text((records / WORKLOADS).read_text())
    (folder / RECORDS).write_text(
        "\n".join([json.dumps(first), lines[1], json.dumps(cut), "{"]) + "\n"
    )
    return folder


def test_what_wins_becomes_the_kernel_and_what_is_broken_is_said(
    records: Path, tmp_path: Path, database: Database, settings: Settings
) -> None:
    (tmp_path / "broken").mkdir()
    imported = import_database(database, broken(records, tmp_path / "broken"), MACHINE, settings)
    assert [record.record for record in imported] == [1, 2, 3, 4]
    assert [record.kernel is not None for record in imported] == [False, True, False, False]
    assert "b99" in imported[0].reason or "Error" in imported[0].reason
    assert "Tensorize" in imported[2].reason and "malformed" in imported[3].reason
    promoted = imported[1]
    assert (
        promoted.median_s is not None
        and promoted.median_s > 1e-9
        and promoted.claimed_s == pytest.approx(1e-9)
    )
    (stored,) = chosen_kernels(database, [str(promoted.kernel)])
    with database.read() as session:
        document = kernels.schedule(session, stored.id)
        assert document["origin"] == "metaschedule" and "vectorize" in document["text"]
        workload = from_document(workloads.get(session, stored.workload).document)
    kernel = Kernel(stored=stored, workload=workload, artifacts=ArtifactStore(settings.artifacts))
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((ROWS, DEPTH), (DEPTH, COLUMNS))
    )
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-5)
    again = import_database(database, records, MACHINE, settings)
    assert [record.reason for record in again if record.kernel is None] and all(
        record.median_s for record in again
    )
    files = export_schedules(database, [stored], tmp_path / "out", "metaschedule")
    assert files == (RECORDS, WORKLOADS) and "Vectorize" in (tmp_path / "out" / RECORDS).read_text()
    assert export_schedules(database, [stored], tmp_path / "scripts", "tvmscript") == (
        f"{stored.id}.py",
    )

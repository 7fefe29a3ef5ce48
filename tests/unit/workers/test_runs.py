"""Runs as the server of runs sees them: what is refused before anything is loaded, and
whose runs it leaves alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.database_samples import kernel_run, sample_kernel
from tests.support.databases import new_database
from tuner.db import artifacts, promotions, runs, workloads
from tuner.db.engine import Database
from tuner.db.runs import Run
from tuner.export.artifacts import ArtifactStore
from tuner.export.signature import signer_at
from tuner.workers.jobs.delivery import signature
from tuner.workers.jobs.runs import OutputTooLarge, RunOptions, RunServer, check_size
from tuner.workload.expression import Tensor
from tuner.workload.spec import parse_spec, to_document

CODE = b"\x7fELF but not really"
DIGEST = hashlib.sha256(CODE).hexdigest()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = new_database(tmp_path / "tuner.db")
    yield opened
    opened.close()


def submitted(
    database: Database, folder: Path, *, signed: str | None = None
) -> tuple[RunOptions, str]:
    """Options of a server for the target of a waiting run, and the run's id."""
    store = ArtifactStore(folder / "artifacts")
    given = store.put(b"arrays")
    assert store.put(CODE) == DIGEST
    with database.write() as session:
        workload = parse_spec("matmul:M=4,N=4,K=4")
        key = workloads.remember(session, workload, to_document(workload))
        artifacts.remember(
            session, sha256=DIGEST, size_bytes=len(CODE), kind="library", signature=signed
        )
        artifacts.remember(session, sha256=given, size_bytes=6, kind="input")
        new = replace(
            sample_kernel(session), workload=key, artifact=DIGEST, schedule={"symbol": "kernel"}
        )
        kernel = promotions.promote(session, new)
        run = runs.submit(session, of=kernel_run(kernel), input_artifact=given)
    return RunOptions(
        artifacts=folder / "artifacts", target=kernel.target, cores=(0,), owner="test"
    ), run.id


def found(database: Database, run: str) -> Run:
    with database.read() as session:
        return runs.get(session, run)


def test_a_library_without_this_services_signature_is_not_loaded(
    database: Database, tmp_path: Path
) -> None:
    ours, theirs = signer_at(tmp_path / "ours"), signer_at(tmp_path / "theirs")
    options, run = submitted(database, tmp_path, signed=signature(theirs, DIGEST))
    assert RunServer(database, replace(options, public_key=ours.public_key)).serve_one()
    refused = found(database, run)
    assert refused.state == runs.FAILED and "signature that is not of the key" in str(refused.error)


def test_a_damaged_library_is_not_loaded(database: Database, tmp_path: Path) -> None:
    ours = signer_at(tmp_path / "ours")
    options, run = submitted(database, tmp_path, signed=signature(ours, DIGEST))
    ArtifactStore(options.artifacts).path(DIGEST).write_bytes(CODE + b"!")
    assert RunServer(database, replace(options, public_key=ours.public_key)).serve_one()
    refused = found(database, run)
    assert refused.state == runs.FAILED and "do not match its name" in str(refused.error)


def test_runs_for_other_machines_are_left_to_them(database: Database, tmp_path: Path) -> None:
    options, run = submitted(database, tmp_path)
    assert not RunServer(database, replace(options, target="another")).serve_one()
    assert found(database, run).state == runs.QUEUED
    with database.write() as session:
        assert (
            runs.claim_next(
                session, owner="there", lifetime=timedelta(seconds=9), targets=[options.target]
            )
            is not None
        )


def test_outputs_beyond_the_limit_are_refused_before_they_are_computed() -> None:
    check_size([Tensor(name="C", shape=(4096, 4096), dtype="float32")])
    with pytest.raises(OutputTooLarge, match="have 1073741824 bytes"):
        check_size([Tensor(name="C", shape=(16384, 16384), dtype="float32")])

"""Jobs and exported libraries on a device, which QEMU emulates here.

Its times are those of translation, and no assertion is about them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from sqlalchemy import select

from tests.support.agents import emulated_agent, native_agent, native_target
from tests.support.command import Tuner, start
from tests.support.job_rows import rows
from tuner.db import jobs, trials
from tuner.db.engine import Database, open_database
from tuner.db.tables import CalibrationRow
from tuner.measure.outcome import FailureKind, Timed, Trial

pytest_plugins = ["tests.support.command"]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(280)]
BUDGET = 5
AARCH64 = 183  # machine of an ELF file
SPEC = "matmul:M=24,N=32,K=16"


@pytest.mark.parametrize("name", ["neoverse-n1", "rv64gcv"])
def test_an_exported_library_is_verified_on_the_device(tuner: Tuner, name: str) -> None:
    """Its constant is packed there by the library's own function."""
    device = emulated_agent(name).text
    packed = f"{SPEC},const=B"
    exported = tuner("export", packed, "--target", f"cpu:{name}", "-o", "kit", "--name", "kit")
    assert exported.code == 0, exported.err
    verified = tuner("verify", "kit", "--device", device, "--json")
    assert verified.code == 0, verified.err
    (function,) = verified.document["functions"]
    assert function["ok"] and function["same_target"] and function["max_rel_error"] < 1e-6
    assert verified.document["machine"]["name"] == f"cpu:{name}"


def test_the_agent_is_built_checked_and_refused_for_another_core(tuner: Tuner) -> None:
    device = emulated_agent("neoverse-n1").text
    target = ("--target", "cpu:neoverse-n1")
    built = tuner("agent", "build", *target, "-o", "agent", "--json")
    assert built.code == 0 and 0 < built.document["bytes"] < 2 << 20
    assert os.access("agent", os.X_OK)
    (item,) = tuner("agent", "check", *target, "--device", device, "--json").document["items"]
    assert item["architecture"] == "aarch64" and item["isolation"].startswith("sealed without")
    other = tuner("agent", "check", "--target", "cpu:cortex-a53", "--device", device)
    assert other.code == 2 and "0x41:0xd0c, which is no cortex-a53" in other.err
    here = tuner("agent", "check", "--target", "cpu:rv64gcv", "--device", device)
    assert here.code == 2 and "it is aarch64" in here.err
    without = tuner("tune", SPEC, "--device", device)
    assert without.code == 2 and "--device is for a declared CPU" in without.err
    away = tuner("tune", SPEC, *target, "--device", "false")
    assert away.code == 1 and "false: it ended" in away.err


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(f"sqlite:///{tmp_path}/tuner.db")
    yield opened
    opened.close()


def wait_for(database: Database, count: int, process: subprocess.Popen[str]) -> str:
    """The job's id, once so many of its trials are recorded."""
    deadline = time.monotonic() + 120
    while True:
        with database.read() as session:
            listed = jobs.list_page(session).items
        if listed and len(rows(database, listed[0].id)) >= count:
            return listed[0].id
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{count} trials were not recorded in time"
        time.sleep(0.05)


def agents(path: str) -> list[psutil.Process]:
    """The processes of the agent, whoever started them."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if path in process.cmdline():
                found.append(process)
    return found


def lanes_of(recorded: Sequence[Trial]) -> set[str]:
    """The lanes on which trials were timed."""
    timed = [trial.outcome for trial in recorded if isinstance(trial.outcome, Timed)]
    return {outcome.conditions.lane for outcome in timed}


@pytest.mark.long
def test_a_job_goes_on_when_its_orchestrator_and_its_device_are_killed(
    database: Database, tmp_path: Path
) -> None:
    """The agent driven as a lane through a whole job, under emulation."""
    device = emulated_agent("neoverse-n1")
    words = ("--device", device.text)
    target = ("--target", "cpu:neoverse-n1", "--trials", str(BUDGET), "--strategy", "random")
    first = start(tmp_path, "tune", SPEC, *target, *words)
    job = wait_for(database, 1, first)
    first.kill()
    first.communicate()
    before = rows(database, job)
    second = start(tmp_path, "resume", job, "--json", *words)
    wait_for(database, len(before) + 1, second)
    for agent in agents(device.command[-1]):
        with suppress(psutil.NoSuchProcess):
            agent.send_signal(signal.SIGKILL)
    output, errors = second.communicate(timeout=200)
    assert second.returncode == 0, errors
    final = rows(database, job)
    assert sorted(final) == list(range(BUDGET))
    assert {number: final[number] for number in before} == before
    (result,) = json.loads(output)["results"]
    assert result["kernel"]["verified"] and result["target"]["name"] == "cpu:neoverse-n1"
    with database.read() as session:
        recorded = trials.of_task(session, job)
    (lane,) = lanes_of(recorded)
    assert lane.startswith("device:")
    assert all(
        isinstance(trial.outcome, Timed) or trial.outcome.kind is not FailureKind.INFRASTRUCTURE
        for trial in recorded
    )
    exported = start(tmp_path, "export", result["kernel"]["id"], "-o", "kit", "--name", "kit")
    assert exported.communicate(timeout=100) and exported.returncode == 0
    library = (tmp_path / "kit/lib/libkit.so").read_bytes()
    assert int.from_bytes(library[18:20], "little") == AARCH64


def test_two_devices_of_a_kind_are_lanes_of_one_job(database: Database, tmp_path: Path) -> None:
    """Both are this machine here, and read their pace when they come into service."""
    word = native_agent().text
    process = start(
        tmp_path, "tune", SPEC, "--target", native_target().name, "--trials", "3",
        "--device", word, "--device", word, "--json",
    )  # fmt: skip
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    (result,) = json.loads(output)["results"]
    assert result["trials"]["total"] == 3 and result["kernel"]["verified"]
    exported = start(tmp_path, "export", result["kernel"]["id"], "-o", "kit", "--name", "kit")
    assert exported.communicate(timeout=100) and exported.returncode == 0
    verified = start(tmp_path, "verify", "kit", "--json", "--device", word)
    output, errors = verified.communicate(timeout=100)
    assert verified.returncode == 0, errors
    (function,) = json.loads(output)["functions"]
    assert function["ok"] and function["same_target"]
    with database.read() as session:
        lanes = set(session.scalars(select(CalibrationRow.lane)))
    assert len(lanes) == 2 and max(lanes) == f"{min(lanes)}#2"


def test_a_range_is_exported_and_verified_on_a_device(database: Database, tmp_path: Path) -> None:
    """Limits are of no class of CPUs, so the kernels of its members were tuned by themselves."""
    word, target = native_agent().text, native_target().name
    family, there = "matmul:M=1..3,N=32,K=16", ("--target", target)
    refused = start(tmp_path, "tune", family, *there, "--device", word)
    _, errors = refused.communicate(timeout=100)
    assert refused.returncode == 2 and "tune single extents instead of a range" in errors
    members = [family.replace("1..3", extent) for extent in ("1", "3")]
    tuned = start(tmp_path, "tune", *members, *there, "--trials", "1", "--device", word)
    _, errors = tuned.communicate(timeout=200)
    assert tuned.returncode == 0, errors
    exported = start(tmp_path, "export", family, *there, "-o", "kit", "--name", "kit")
    _, errors = exported.communicate(timeout=100)
    assert exported.returncode == 0, errors
    verified = start(tmp_path, "verify", "kit", "--json", "--device", word)
    output, errors = verified.communicate(timeout=100)
    assert verified.returncode == 0, errors
    (function,) = json.loads(output)["functions"]
    assert function["ok"] and function["same_target"]

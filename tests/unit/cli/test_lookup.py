"""`tuner lookup`, `best` and `export` by objective and caches, on this machine's database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.database_samples import sample_kernel
from tests.support.databases import new_database
from tests.support.targets import host_target
from tuner.db import jobs, leases, promotions, targets, tradeoffs, workloads
from tuner.db.engine import Database
from tuner.settings import load_settings
from tuner.workload.spec import parse_spec, to_document

SPEC = "matmul:M=32,N=32,K=32"


@pytest.fixture
def database(home: Path) -> Iterator[Database]:
    """The user's default database with a fast and a small kernel, and a cold one."""
    opened = new_database(load_settings().values.db)
    workload, target = parse_spec(SPEC), host_target()
    with opened.write() as session:
        key = workloads.remember(session, workload, to_document(workload))
        targets.remember(session, target)
        new = jobs.NewJob(workloads=(key,), target=target.key, threads=1, trials=4)
        lease = leases.claim(session, jobs.create(session, new)[0].id, owner="test")[1]
        sample = replace(sample_kernel(session), workload=key, target=target.key)
        fast = replace(sample, median_s=1e-3, workspace_bytes=8192, code_bytes=900)
        promotions.promote(session, fast, lease=lease)
        small = replace(sample, median_s=1.5e-3, workspace_bytes=0, code_bytes=200)
        tradeoffs.keep(session, [small], lease)
        promotions.promote(session, replace(sample, median_s=4e-3, cache="cold"))
    yield opened
    opened.close()


def test_the_objective_chooses(tuner: Callable[..., Any], database: Database) -> None:
    def median(*flags: str) -> float:
        document = tuner("lookup", SPEC, "--json", *flags).document
        assert document["source"] == "exact" and document["front"] is None
        return float(document["kernel"]["median_s"])

    assert median() == 1e-3 and median("--objective", "code_size") == 1.5e-3
    assert median("--objective", "memory", "--within", "20") == 1e-3
    assert median("--objective", "memory", "--within", "50") == 1.5e-3
    assert median("--cache", "cold") == 4e-3 and median("--threads", "auto") == 1e-3


@pytest.mark.parametrize("threads", ["0", "-5", "1025"])
def test_threads_have_the_settings_bounds(
    tuner: Callable[..., Any], database: Database, threads: str
) -> None:
    called = tuner("lookup", SPEC, "--threads", threads)
    assert called.code == 2 and f"threads is {threads} (flag --threads)" in called.err


def test_a_front_is_a_table_and_a_document(tuner: Callable[..., Any], database: Database) -> None:
    called = tuner("lookup", SPEC, "--objective", "time,code_size")
    lines = called.out.splitlines()
    assert len(lines) == 3 and "8.00 KiB" in lines[1] and "200 B" in lines[2]
    assert lines[2].rstrip().endswith("tradeoff, disturbed")
    front = tuner("lookup", SPEC, "--objective", "time,code_size", "--json").document["front"]
    assert [each["code_bytes"] for each in front] == [900, 200]


def test_best_lists_promoted_kernels_and_says_which_are_cold(
    tuner: Callable[..., Any], database: Database
) -> None:
    lines = tuner("best").out.splitlines()[1:]
    assert sorted("cold caches" in line for line in lines) == [False, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lookup", SPEC, "--objective", "speed"), "unknown objective 'speed'; it is time,"),
        (("lookup", SPEC, "--objective", "energy"), "no kernel's energy of a call was measured"),
        (("lookup", SPEC, "--threads", "2"), "make one: tuner tune matmul:M=32,N=32,K=32"),
        (("lookup", SPEC, "--target", "cpu:rv64gcv"), "dtype=float32 --target cpu:rv64gcv"),
        (("lookup", SPEC, "--threads", "many"), "threads is 'many'; give a number, or auto"),
        (("lookup", "softmax:M=2,N=8", "--cache", "cold"), "--cache cold"),
        (("tune", SPEC, "--cache", "tepid"), "tepid"),
        (("tune", SPEC, "--target", "cuda:sm_90", "--cache", "cold"), "is a GPU: only a machine's"),
        (("tune", SPEC, "--target", "cuda:sm_90", "--objective", "memory"), "give time or energy"),
        (("tune", SPEC, "--threads", "auto", "--cache", "cold"), "compares counts with warm"),
        (("tune", "matmul:M=1..8,N=16,K=16", "--objective", "memory"), "a range becomes one"),
        (("tune", "net.onnx", "--objective", "memory"), "by the time of the whole"),
        (("tune", "net.onnx", "--cache", "cold"), "as the model leaves them"),
        (("submit", SPEC, "--objective", "throughput"), "a service measures beside other work"),
        (("export", "--all", "-o", "kit", "--objective", "time,memory"), "give one objective"),
        (("export", "k_1", "-o", "kit", "--within", "3"), "give --all with them"),
    ],
)
def test_bad_input_is_one_clear_error(
    tuner: Callable[..., Any], database: Database, arguments: tuple[str, ...], message: str
) -> None:
    called = tuner(*arguments)
    assert called.code == 2 and message in called.err and len(called.err.splitlines()) == 1
    assert called.out == ""

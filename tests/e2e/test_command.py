"""The command from a user's shell, nothing replaced: tune, look, race, export, call
from C; stop, kill and resume.

One small workload, so that each run takes seconds; what is asserted is what scripts
rely on, never how fast a kernel is.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from tuner.db import jobs
from tuner.db.engine import open_database
from tuner.workload.spec import parse_spec

# One run of workers at a time: they share the machine's cores.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("fleet")]

ROOT = Path(tuner.__file__).parent.parent
SPEC = (
    "softmax:M=37,N=53"  # so much arithmetic for its bytes that no run ends early, at the roofline
)
LIMIT_S = 180


class User:
    """A user with an empty home: commands run in their own folder, which holds decoys
    of the product's packages."""

    def __init__(self, home: Path) -> None:
        self.home, self.work = home, home / "work"
        self.work.mkdir()
        for decoy in ("api", "db", "workers"):
            (self.work / decoy).mkdir()
            (self.work / decoy / "__init__.py").write_text(
                "raise ImportError('a decoy was imported')\n"
            )
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("TUNER_")
        }
        self.environment |= {
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "PYTHONPATH": str(ROOT),
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-m", "tuner", *arguments]
        return subprocess.Popen(
            command,
            cwd=self.work,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
        return out, err

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code)[0])

    def wait_for_trials(self, count: int) -> str:
        """The newest job's id, once it has so many trials; read from the database, since
        commands would take the cores that it is tuned on."""
        database = open_database(self.home / "data" / "tuner" / "tuner.db")
        deadline = time.monotonic() + LIMIT_S
        try:
            while time.monotonic() < deadline:
                with database.read() as session:
                    newest = jobs.list_page(session, limit=1).items
                if newest and newest[0].tasks[0].trials_done >= count:
                    return newest[0].id
                time.sleep(0.05)
        finally:
            database.close()
        raise AssertionError(f"no job reached {count} trials within {LIMIT_S} s")


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    return User(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def tuned(user: User) -> Any:
    return user.json("tune", SPEC, "--trials", "8", "--seconds", "60", "--seed", "3")


def test_tune_prints_the_promised_document(user: User, tuned: Any) -> None:
    (result,) = tuned["results"]
    assert set(result) == {"workload", "target", "space_size", "trials", "kernel", "elapsed_s"}
    assert result["workload"]["op"] == "softmax" and result["workload"]["params"]["M"] == 37
    assert set(result["target"]) == {"key", "kind", "name"}
    assert (
        result["trials"]["total"]
        == 8
        == result["trials"]["ok"] + sum(result["trials"]["failed"].values())
    )
    kernel = result["kernel"]
    assert set(kernel) == {
        "id", "config", "median_s", "ci95_s", "gflops", "roofline_fraction", "max_rel_error",
        "verified", "default_median_s", "disturbed", "loss", "cache", "workspace_bytes",
        "code_bytes", "instances", "calls_per_s", "energy_j",
    }  # fmt: skip
    assert kernel["verified"] and kernel["ci95_s"][0] <= kernel["median_s"] <= kernel["ci95_s"][1]
    assert kernel["gflops"] == pytest.approx(
        parse_spec(SPEC).expression.flops / kernel["median_s"] / 1e9
    )
    assert set(result["elapsed_s"]) == {"total", "search", "build", "measure"}
    assert result["elapsed_s"]["total"] > 0


def test_its_trials_are_all_there_the_default_first(user: User, tuned: Any) -> None:
    items = user.json("trials", tuned["job"])["items"]
    assert [item["number"] for item in items] == list(range(8))
    assert items[0]["config"] == {} and items[0]["outcome"] == "ok"
    assert all(
        ("sketch" in item["config"]) and (item["outcome"] == "ok") == (item["error"] is None)
        for item in items[1:]
    )


def test_the_kernel_is_listed_and_the_job_succeeded(user: User, tuned: Any) -> None:
    (item,) = user.json("best", SPEC)["items"]
    assert item["id"] == tuned["results"][0]["kernel"]["id"] and item["job"] == tuned["job"]
    assert user.json("show", tuned["job"])["state"] == "succeeded"


def test_bench_races_it_against_default_and_numpy(user: User, tuned: Any) -> None:
    (race,) = user.json("bench", SPEC, "--against", "default,numpy")["results"]
    assert [entry["name"] for entry in race["entries"]] == ["kernel", "default", "numpy"]
    assert all(
        entry["ci95_s"][0] <= entry["median_s"] <= entry["ci95_s"][1] for entry in race["entries"]
    )
    assert set(race["ratios"]) == {"default", "numpy"} and min(race["ratios"].values()) > 0


def test_a_gate_that_holds_does_not_fail(user: User, tuned: Any) -> None:
    out, _ = user.run("bench", SPEC, "--against", "default", "--fail-if-slower", "900")
    assert "kernel" in out and "default" in out


def test_ci_holds_it_against_its_record(user: User, tuned: Any) -> None:
    # Beside other tests a kernel may well take longer than it did alone.
    (item,) = user.json("ci", SPEC, "--tolerance", "900")["items"]
    kernel = tuned["results"][0]["kernel"]
    assert (item["kernel"], item["verdict"]) == (kernel["id"], "kept")
    assert item["recorded"] == {"median_s": kernel["median_s"], "ci95_s": kernel["ci95_s"]}
    assert item["now"]["ci95_s"][0] <= item["now"]["median_s"] <= item["now"]["ci95_s"][1]


@pytest.fixture(scope="module")
def library(user: User, tuned: Any) -> Path:
    user.run("export", "--all", "-o", "library", "--name", "small")
    return user.work / "library"


def test_the_exported_library_runs_its_own_example_in_c(user: User, library: Path) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    program = user.work / "example"
    build = [
        compiler,
        "-o",
        str(program),
        str(library / "examples/example.c"),
        f"-I{library / 'include'}",
        f"-L{library / 'lib'}",
    ]
    subprocess.run(
        [*build, "-lsmall", f"-Wl,-rpath,{library / 'lib'}", "-lm"], check=True, timeout=60
    )
    subprocess.run([str(program)], check=True, timeout=60)


def test_its_manifest_names_the_job_and_the_kernel(library: Path, tuned: Any) -> None:
    manifest = json.loads((library / "manifest.json").read_text())
    (function,) = manifest["functions"]
    assert function["provenance"]["job"] == tuned["job"]
    assert [argument["role"] for argument in function["arguments"]] == ["in", "out"]


def test_an_export_does_not_replace_a_strangers_folder(user: User, tuned: Any) -> None:
    _, err = user.run("export", "--all", "-o", ".", code=2)
    assert err.startswith("error: ")


def test_the_python_call_gives_a_kernel_to_call(user: User) -> None:
    """A fresh process, because the call starts workers; three stages and odd extents,
    handed over as a notation text."""
    program = '''
import numpy as np
import tuner

TEXT = """
kernel mlp(A: f32[M, K], B: f32[K, N], bias: f32[N]) -> (C: f32[M, N]) {
  T[i, j] += A[i, k] * B[k, j]
  U[i, j] = T[i, j] + bias[j]
  C[i, j] = max(U[i, j], 0)
}
"""
kernel = tuner.tune(TEXT, shapes={"M": 13, "N": 29, "K": 17}, trials=4, seconds=60, threads=1, seed=1)
rng = np.random.default_rng(0)
a, b, bias = (rng.standard_normal(shape, dtype=np.float32) for shape in ((13, 17), (17, 29), (29,)))
assert np.allclose(kernel(a, b, bias), np.maximum(a @ b + bias, 0), atol=1e-4)
assert kernel.verified and kernel.median_s > 0 and kernel.job
print(kernel.id)
'''  # noqa: E501
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=user.work, env=user.environment,
        capture_output=True, text=True,
        timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() in {item["id"] for item in user.json("best")["items"]}


@pytest.fixture
def other(tmp_path: Path) -> Iterator[User]:
    yield User(tmp_path)


@pytest.mark.long
def test_ctrl_c_stops_cleanly_and_resume_finishes(other: User) -> None:
    process = other.start("tune", SPEC, "--trials", "40", "--seconds", "120")
    job = other.wait_for_trials(2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 3, err
    assert f"tuner resume {job}" in err
    before = other.json("trials", job)["items"]
    assert other.json("show", job)["state"] == "cancelled" and 2 <= len(before) < 40
    result = other.json("resume", job, "--trials", str(len(before) + 4))
    after = other.json("trials", job)["items"]
    assert result["results"][0]["kernel"]["verified"]
    assert [item for item in after if item in before] == before
    assert [item["number"] for item in after] == list(range(len(before) + 4))


def test_a_killed_run_resumes_where_it_was(other: User) -> None:
    process = other.start("tune", SPEC, "--trials", "12", "--seconds", "120")
    job = other.wait_for_trials(3)
    process.kill()
    process.communicate(timeout=LIMIT_S)
    before = other.json("trials", job)["items"]
    assert other.json("show", job)["state"] == "running"
    other.run("resume", "last")
    after = other.json("trials", job)["items"]
    assert [item for item in after if item in before] == before
    assert [item["number"] for item in after] == list(range(12))
    assert other.json("show", job)["state"] == "succeeded"


def test_numpy_agrees_with_the_exported_python_package(user: User, library: Path) -> None:
    program = (
        "import numpy as np, small\n"
        "(name,) = [name for name in dir(small) if name.startswith('softmax')]\n"
        "np.save('out.npy', getattr(small, name)(np.ones((37, 53), np.float32)))\n"
    )
    environment = {**user.environment, "PYTHONPATH": str(library)}
    subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=user.work,
        env=environment,
        check=True,
        timeout=60,
    )
    assert np.allclose(np.load(user.work / "out.npy"), 1 / 53, rtol=1e-6)

"""Jobs for a GPU from nothing to a promoted, exported, served kernel, on a machine
whose driver and compiler are doubles."""

from __future__ import annotations

import io
import json
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.device.machine import DEVICE, needs_compiler
from tests.support.gpu_commands import LIMIT_S, Machine

NPZ = {"Content-Type": "application/x-npz"}
SPEC = "matmul:M=24,N=32,K=16"

pytestmark = [
    needs_compiler,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("fleet"),
]


@pytest.fixture(scope="module")
def machine(doubles: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"), doubles)


@pytest.fixture(scope="module")
def tuned(machine: Machine) -> dict[str, Any]:
    document: dict[str, Any] = machine.run(
        "tune", SPEC, "--target", "cuda", "--trials", "5", "--seed", "1"
    )
    return document


def test_a_gpu_is_tuned_for_from_nothing_to_a_promoted_kernel(
    machine: Machine, tuned: dict[str, Any]
) -> None:
    (result,) = tuned["results"]
    assert result["target"]["kind"] == "cuda" and DEVICE in result["target"]["name"]
    assert result["trials"] == {"total": 5, "ok": 5, "failed": {}}
    kernel = result["kernel"]
    assert kernel["verified"] and 0 < kernel["median_s"] <= kernel["default_median_s"]
    trials = machine.run("trials", tuned["job"])["items"]
    assert [trial["number"] for trial in trials] == list(range(5)) and not trials[0]["config"]
    assert {trial["resources"]["registers"] for trial in trials} == {32} and min(
        trial["resources"]["resident_warps"] for trial in trials
    )
    (row,) = machine.run("best")["items"]
    assert row["id"] == kernel["id"]


@pytest.fixture(scope="module")
def exported(machine: Machine, tuned: dict[str, Any]) -> Path:
    kernel = tuned["results"][0]["kernel"]["id"]
    machine.run("export", kernel, "-o", "out", "--name", "onegpu", gpu=False)
    return machine.folder / "out"


def test_its_library_is_exported_with_its_cubin(exported: Path) -> None:
    (function,) = json.loads((exported / "manifest.json").read_text())["functions"]
    assert (
        function["architectures"] == ["sm_90"]
        and function["verified"]
        and function["target"]["kind"] == "cuda"
    )
    assert (exported / "lib" / "libonegpu.so").is_file() and (
        exported / "onegpu" / "__init__.py"
    ).is_file()


def test_its_export_is_verified_where_there_is_a_gpu(machine: Machine, exported: Path) -> None:
    report = machine.run("verify", str(exported), "--seed", "3")
    (function,) = report["functions"]
    assert report["ok"] and DEVICE in report["machine"]["name"]
    assert function["same_target"] and function["workload"].startswith(SPEC)
    assert 0 < function["max_rel_error"] < 1e-4 and function["median_s"] > 0
    process = machine.start("verify", str(exported), gpu=False)
    _, said = process.communicate(timeout=LIMIT_S)
    assert (
        process.returncode == 1
        and "onegpu is for GPUs, and this machine has no NVIDIA driver" in said
    )


FOUND = """========= Invalid __global__ write of size 4 bytes
=========     at tuned_matmul_kernel+0x90
=========     by thread (3,0,0) in block (0,0,0)
=========     Address 0x7f3c7ec000fc is out of bounds
=========
========= ERROR SUMMARY: 1 error
"""


def test_its_export_is_looked_at_by_compute_sanitizer(
    machine: Machine, exported: Path, doubles: Mapping[str, str], tmp_path: Path
) -> None:
    (function,) = machine.run("verify", str(exported), "--sanitize", "all")["functions"]
    assert function["sanitized"] == ["memcheck", "racecheck", "synccheck", "initcheck"]
    said = Path(doubles["CUDA_HOME"]) / "bin" / "memcheck.txt"
    said.write_text(FOUND)
    try:
        (function,) = machine.run(
            "verify", str(exported), "--sanitize", "racecheck,memcheck", status=1
        )["functions"]
    finally:
        said.unlink()
    assert function["error"].endswith(
        "compute-sanitizer's memcheck found 1: Invalid __global__ write of size 4 bytes at "
        "tuned_matmul_kernel+0x90 "
        "by thread (3,0,0) in block (0,0,0) Address 0x7f3c7ec000fc is out of bounds"
    )


# A block for each row, a thread for each of its elements.
FOREIGN = """
extern "C" __global__ void matmul_m24_n32_k16(const float *a, const float *b, float *c) {
  float sum = 0;
  for (int k = 0; k < 16; ++k) sum += a[blockIdx.x * 16 + k] * b[k * 32 + threadIdx.x];
  c[blockIdx.x * 32 + threadIdx.x] = sum;
}
"""


def test_a_foreign_kernel_is_judged_beside_the_promoted_one(
    machine: Machine, tuned: dict[str, Any]
) -> None:
    (machine.folder / "right.cu").write_text(FOREIGN)
    (machine.folder / "wrong.cu").write_text(FOREIGN.replace("float sum = 0", "float sum = 1"))
    launch = ("--target", "cuda", "--grid", "24", "--block", "32")
    verdict = machine.run("judge", SPEC, "right.cu", *launch)
    assert (verdict["verdict"], verdict["element"]) == ("verified", None), verdict["message"]
    assert verdict["time"]["rival"] == "incumbent" and verdict["time"]["roofline_fraction"] > 0
    low, high = verdict["time"]["ratio_ci95"]
    assert 0 < low <= verdict["time"]["ratio"] <= high
    wrong = machine.run("judge", SPEC, "wrong.cu", *launch, status=1)
    assert (wrong["verdict"], wrong["element"]["index"]) == ("wrong_element", [0, 0])
    signature = machine.run("judge", SPEC, "--signature", "--target", "cuda")["signature"]
    assert 'extern "C" __global__ void matmul_m24_n32_k16(const float *in_A' in signature


def test_a_service_judges_foreign_kernels_of_its_gpu(
    machine: Machine, tuned: dict[str, Any]
) -> None:
    body = {
        "workload": {"op": "matmul", "params": {"M": 24, "N": 32, "K": 16}},
        "language": "cuda",
        "source": FOREIGN,
        "launch": {"grid": [24], "block": [32]},
        "target": "cuda",
    }
    with served(machine, "--target", "cuda", gpu=True, TUNER_CANDIDATES="on") as client:
        answered = client.post("/candidates", json=body)
        assert answered.status_code == 202, answered.text
        job = answered.json()["job"]["id"]
        done = settled(client, job)
        assert done["state"] == "succeeded", done
        verdict = client.get(f"/candidates/{job}").json()["verdict"]
    assert verdict["verdict"] == "verified", verdict["message"]
    assert verdict["time"]["rival"] == "incumbent"


def test_it_is_raced_again_against_the_default(machine: Machine, tuned: dict[str, Any]) -> None:
    (race,) = machine.run("bench", SPEC, "--target", "cuda", "--against", "default,numpy")[
        "results"
    ]
    assert {entry["name"] for entry in race["entries"]} == {"kernel", "default"} and race["ratios"][
        "default"
    ] > 0.5
    assert "GPU's lane runs nothing else" in race["absent"]["numpy"]


def test_its_energy_is_what_the_board_counts(machine: Machine) -> None:
    asked = ("matmul:M=16,N=16,K=16", "--target", "cuda", "--trials", "3")
    (result,) = machine.run("tune", *asked, "--objective", "energy")["results"]
    kernel = result["kernel"]
    # The double takes 100 W, whatever runs.
    assert kernel["energy_j"] == pytest.approx(100 * kernel["median_s"], rel=0.5)


def test_doctor_names_the_gpu_and_its_compiler(machine: Machine) -> None:
    findings = {finding["check"]: finding for finding in machine.run("doctor")["findings"]}
    assert (
        findings["gpu"]["status"] == "ok"
        and DEVICE in findings["gpu"]["detail"]
        and "nvcc" in findings["gpu"]["detail"]
    )


@contextmanager
def served(machine: Machine, *arguments: str, gpu: bool, **settings: str) -> Iterator[httpx.Client]:
    command = ("serve", "--port", "0", "--auth", "off", *arguments)
    process = machine.start(*command, gpu=gpu, **settings)
    try:
        assert process.stdout is not None
        url = ""
        while not url:
            line = process.stdout.readline()
            assert line, "the service ended"
            url = next(
                (word.rstrip("/.,") for word in line.split() if word.startswith("http://")), ""
            )
        with httpx.Client(base_url=f"{url}/v1", timeout=30.0) as client:
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def npz(**arrays: Any) -> bytes:
    held = io.BytesIO()
    np.savez(held, **arrays)
    return held.getvalue()


def settled(client: httpx.Client, job: str) -> dict[str, Any]:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        document: dict[str, Any] = client.get(f"/jobs/{job}").json()
        if document["state"] in ("succeeded", "failed", "cancelled"):
            return document
        time.sleep(0.5)
    raise AssertionError(f"job {job} did not end: {document}")


def test_a_job_that_waits_is_served_when_a_runner_joins(
    doubles: Mapping[str, str], tmp_path: Path
) -> None:
    """A service without a GPU takes the job and says what it waits for; one with a GPU,
    on the same database, serves it."""
    machine = Machine(tmp_path, doubles)
    body = {
        "workload": {"op": "softmax", "params": {"M": 4, "N": 40}},
        "target": "cuda:sm_90",
        "trials": 2,
    }
    with served(machine, gpu=False) as client:
        job = client.post("/jobs", json=body).json()["id"]
        assert client.get(f"/jobs/{job}").json()["waiting"] == "waiting for a runner of cuda:sm_90"
        with served(machine, "--target", "cuda", gpu=True) as other:
            done = settled(other, job)
            assert done["state"] == "succeeded", done
            (kernel,) = [
                kernel
                for kernel in client.get("/kernels").json()["items"]
                if kernel["target"]["kind"] == "cuda"
            ]
            # Sent to the service without a GPU, answered by the other one.
            given = np.random.default_rng(3).standard_normal((4, 40), np.float32)
            answer = client.post(f"/kernels/{kernel['id']}/run", content=npz(X=given), headers=NPZ)
            assert answer.status_code == 200, answer.text
            with np.load(io.BytesIO(answer.content)) as outputs:
                exponentials = np.exp(given - given.max(axis=1, keepdims=True))
                expected = exponentials / exponentials.sum(axis=1, keepdims=True)
                np.testing.assert_allclose(outputs["Y"], expected, rtol=1e-5)
            wrong = client.post(
                f"/kernels/{kernel['id']}/run", content=npz(X=given[:, :3]), headers=NPZ
            )
            assert wrong.status_code == 422, wrong.text
        archive = client.get(f"/kernels/{kernel['id']}/artifact")
        assert archive.status_code == 200 and archive.content[:2] == b"\x1f\x8b"
        assert "cuda" in client.get(f"/kernels/{kernel['id']}/source").json()["sources"]
        looked_up = client.post(
            "/lookup", json={"workload": body["workload"], "target": "cuda:sm_90"}
        ).json()
        assert (looked_up["source"], looked_up["kernel"]["id"]) == ("exact", kernel["id"])
        left = client.post(f"/kernels/{kernel['id']}/run", content=b"", headers=NPZ)
        assert left.status_code == 422 and "call it there" in left.json()["detail"]

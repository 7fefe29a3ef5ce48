"""`tuner serve` in a fresh home: a job asked for over HTTP becomes a kernel, and the
service ends without leaving a process."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

import tuner
from tests.support.archives import unpack
from tests.support.service_log import LIMIT_S, listening
from tuner.export.manifest import read_manifest
from tuner.workers.jobs.delivery import check_signature

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("fleet")]

ROOT = Path(tuner.__file__).parent.parent


def test_a_job_over_http_becomes_a_kernel_and_nothing_is_left(tmp_path: Path) -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TUNER_")
    }
    environment |= {
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-P", "-m", "tuner", "serve", "--port", "0", "--auth", "off"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        url = listening(tmp_path / "log", process)
        with httpx.Client(base_url=url + "/v1", timeout=30) as client:
            asked = client.post(
                "/jobs",
                json={"workload": {"op": "softmax", "params": {"M": 37, "N": 53}}, "trials": 4},
            )
            assert asked.status_code == 202, asked.text
            job = finished(client, asked.json()["id"], tmp_path / "log")
            assert job["state"] == "succeeded", job
            kernel = client.get(f"/kernels/{job['tasks'][0]['kernel']}").json()
            assert kernel["verified"] and kernel["workload"]["op"] == "softmax"
            assert_runs(client, kernel["id"])
            assert_handed_out(client, kernel["id"], tmp_path / "unpacked")
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []


def assert_runs(client: httpx.Client, kernel: str) -> None:
    """The kernel on arrays that no trial has seen, against NumPy; what it does not take
    is refused."""
    x = np.random.default_rng(11).standard_normal((37, 53)).astype(np.float32) * 5
    expected = np.exp(x - x.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    answer = run(client, kernel, X=x)
    assert answer.status_code == 200, answer.text
    with np.load(io.BytesIO(answer.content), allow_pickle=False) as outputs:
        assert len(outputs.files) == 1
        np.testing.assert_allclose(outputs[outputs.files[0]], expected, rtol=1e-4, atol=1e-6)
    assert run(client, kernel, X=x[:-1]).status_code == 422


def run(client: httpx.Client, kernel: str, **arrays: Any) -> httpx.Response:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    headers = {"Content-Type": "application/x-npz"}
    return client.post(
        f"/kernels/{kernel}/run", content=buffer.getvalue(), headers=headers, timeout=60
    )


def assert_handed_out(client: httpx.Client, kernel: str, folder: Path) -> None:
    """The artifact is the signed export of one function, the generated code can be read."""
    answer = client.get(f"/kernels/{kernel}/artifact")
    digest = hashlib.sha256(answer.content).hexdigest()
    assert answer.headers["etag"] == f'"{digest}"'
    unpack(answer.content, folder)
    (directory,) = folder.iterdir()
    manifest = read_manifest(directory)
    assert manifest.public_key is not None and len(manifest.functions) == 1
    check_signature(digest, answer.headers["x-signature-ed25519"], manifest.public_key)
    assert {"llvm", "asm", "tvmscript", "schedule"} <= set(
        client.get(f"/kernels/{kernel}/source").json()["sources"]
    )


def finished(client: httpx.Client, job_id: str, log: Path) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        job = client.get(f"/jobs/{job_id}").json()
        if job["state"] in ("succeeded", "failed", "cancelled"):
            return job
        time.sleep(0.5)
    raise AssertionError(log.read_text())

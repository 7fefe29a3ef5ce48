"""A home in which models are tuned by the command and by a service, whose processes may be killed.

It has a database, a folder for temporary files and a small model of its own.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from onnx.reference import ReferenceEvaluator

from tests.support import onnx_networks as nets
from tests.support.server_process import free_port
from tests.support.service_log import listening
from tuner.db import jobs, schema
from tuner.db.engine import open_database
from tuner.export.manifest import verify_hashes
from tuner.runtime.loader import Library
from tuner.scratch import COMMON, remove_leftovers

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 150.0
LEFT_BY_US = ("tuner-fleet-", COMMON)
FINISHED = ("succeeded", "failed", "cancelled")
Document = Mapping[str, Any]


class ModelHome:
    """Commands and services of one user."""

    def __init__(
        self,
        folder: Path,
        *,
        url: str | None = None,
        artifacts: Path | None = None,
        sizes: tuple[int, ...] = (48, 40, 24, 10),
    ):
        """`sizes` are those of the model's layers."""
        self.folder = folder
        self.model = nets.perceptron(sizes=sizes)
        self.file = folder / "net.onnx"
        self.file.write_bytes(nets.serialized(self.model))
        # Short, so that Ray's sockets find room below it.
        self.temporary = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
        self.port = free_port()
        self.started: list[psutil.Process] = []  # all that was seen to run
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("TUNER_")
        }
        self.environment |= {
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(ROOT),
            "TUNER_DB": url or f"sqlite:///{folder}/tuner.sqlite",
        }
        if artifacts is not None:
            self.environment["TUNER_ARTIFACTS"] = str(artifacts)

    def start(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        """A command in a process of its own."""
        command = [sys.executable, "-P", "-m", "tuner", *arguments]
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def tune(self, directory: Path, *more: str) -> subprocess.Popen[bytes]:
        """`tuner tune` of the model into a directory; its log stands beside it."""
        options = ("--name", "net", "--threads", "1", *more)
        log = directory.with_suffix(".log")
        return self.start("tune", str(self.file), "-o", str(directory), *options, log=log)

    def ended(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Waits for a command, which must succeed."""
        assert process.wait(timeout=LIMIT_S) == 0, log.read_text()[-3000:]

    def run(self, *arguments: str) -> str:
        """The output of a command that must succeed."""
        log = self.folder / f"run{time.monotonic_ns()}.log"
        self.ended(self.start(*arguments, log=log), log)
        return log.read_text()

    def watch(self, process: subprocess.Popen[bytes]) -> list[psutil.Process]:
        """Notes all processes below this one, and gives them."""
        with suppress(psutil.NoSuchProcess):
            children: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
            self.started += children
            return children
        return []

    def assert_kept(self, *ids: str) -> None:
        """These jobs, or all, succeeded with all their kernels, each within its own budget."""
        database = open_database(self.environment["TUNER_DB"])
        with database.read() as session:
            listed = [job for job in jobs.list_page(session).items if not ids or job.id in ids]
        assert schema.check(database.engine) == []
        database.close()
        assert listed and (not ids or len(listed) == len(ids))
        for job in listed:
            assert job.state == jobs.SUCCEEDED, job.error
            spent = sum(task.trials_done for task in job.tasks)
            assert spent <= job.trials * len(job.tasks)
            assert all(task.kernel for task in job.tasks)

    def assert_exported(self, directory: Path) -> None:
        """The library there is as it was written, and computes what ONNX's evaluator does."""
        verify_hashes(directory)
        inputs = nets.feeds(self.model)
        (expected,) = ReferenceEvaluator(self.model).run(None, inputs)
        run = Library(directory / "lib/libnet.so").function("net_run")
        np.testing.assert_allclose(run(*inputs.values()), expected, rtol=1e-4, atol=1e-5)

    def assert_nothing_is_left(self) -> None:
        """No process outlives those that were killed, and the next removes their files."""
        _, alive = psutil.wait_procs(self.started, timeout=40)
        assert alive == [], [each.cmdline() for each in alive if each.is_running()]
        for left in self.temporary.iterdir():
            os.utime(left, (1, 1))
        for prefix in LEFT_BY_US:
            remove_leftovers(prefix, self.temporary)
        # The file of a turn stays: with it removed, two could have the turn.
        left_over = [path.name for path in self.temporary.iterdir() if path.suffix != ".lock"]
        assert left_over == []

    def close(self) -> None:
        for process in self.started:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(self.temporary, ignore_errors=True)

    @contextmanager
    def served(self) -> Iterator[Served]:
        """`tuner serve`, which ends with the block unless it was killed."""
        log = self.folder / "service.log"
        log.write_text("")
        process = self.start("serve", "--port", str(self.port), "--auth", "off", log=log)
        try:
            url = listening(log, process)
            with httpx.Client(base_url=f"{url}/v1", timeout=60, verify=False) as http:
                yield Served(self, process, http, log)
        finally:
            self.watch(process)
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(timeout=60)


class Served:
    """One start of the service."""

    def __init__(
        self, home: ModelHome, process: subprocess.Popen[bytes], http: httpx.Client, log: Path
    ) -> None:
        self.home, self.process, self.http, self.log = home, process, http, log

    def submit(self, **options: str | int | float) -> str:
        """The id of a job of the model."""
        headers = {"Content-Type": "application/octet-stream"}
        content = self.home.file.read_bytes()
        answer = self.http.post("/models", content=content, headers=headers, params=options)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def job(self, job: str) -> Document:
        answer = self.http.get(f"/jobs/{job}")
        assert answer.status_code == 200, answer.text
        document: Document = answer.json()
        return document

    def wait(self, job: str, reached: Callable[[Document], bool]) -> Document:
        """The job once it is so far, or has ended."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            self.home.watch(self.process)
            document = self.job(job)
            if reached(document) or document["state"] in FINISHED:
                return document
            time.sleep(0.05)
        raise AssertionError(f"{self.job(job)}\n{self.log.read_text()[-3000:]}")

    def succeeded(self, job: str) -> Document:
        document = self.wait(job, lambda document: False)
        assert document["state"] == "succeeded", (document, self.log.read_text()[-3000:])
        return document

    def trials(self, job: str) -> dict[tuple[int, int], Any]:
        """What was recorded, by workload and number."""
        recorded: dict[tuple[int, int], Any] = {}
        cursor: str | None = None
        while True:
            params = {"limit": "1000"} | ({} if cursor is None else {"cursor": cursor})
            page = self.http.get(f"/jobs/{job}/trials", params=params).json()
            recorded |= {(item["workload"], item["number"]): item for item in page["items"]}
            cursor = page["next"]
            if cursor is None:
                return recorded

    def processes(self, *, called: str) -> Sequence[psutil.Process]:
        """Processes of the service whose command line has this text."""
        chosen = []
        for process in self.home.watch(self.process):
            with suppress(psutil.NoSuchProcess):
                if called in " ".join(process.cmdline()):
                    chosen.append(process)
        return chosen

    def assert_right(self, job: str) -> None:
        """The job's library, run by the service, computes what ONNX's evaluator does."""
        inputs = nets.feeds(self.home.model)
        (expected,) = ReferenceEvaluator(self.home.model).run(None, inputs)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **inputs)
        headers = {"Content-Type": "application/x-npz"}
        answer = self.http.post(f"/models/{job}/run", content=buffer.getvalue(), headers=headers)
        assert answer.status_code == 200, answer.text
        with np.load(io.BytesIO(answer.content), allow_pickle=False) as outputs:
            np.testing.assert_allclose(outputs[outputs.files[0]], expected, rtol=1e-4, atol=1e-5)

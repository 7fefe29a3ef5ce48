"""Has the library of a region made by a process that has a compiler and a database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tuner.errors import TunerError
from tuner.settings import Settings
from tuner.torch.forks import Inherited, unforked

GRACE_S = 600.0  # beyond the budget: limits are measured, workers start, libraries are linked
COMMAND = (sys.executable, "-P", "-m", "tuner.app.models.region_process")
_PASSED = (
    "data_dir", "db", "artifacts", "target", "threads", "trials", "seconds", "numerics",
    "max_error", "server", "token",
)  # fmt: skip
_TAIL = 400  # characters that are shown of a dead process's standard error
_ROOT = Path(__file__).resolve().parents[2]


class TuningFailed(TunerError):
    """A region's library could not be made."""

    code = "no_kernel"


@dataclass(frozen=True, kw_only=True)
class Making:
    """What is to be made, and where to."""

    graph: bytes  # packed
    key: str
    folder: Path  # of the cache
    background: bool  # at low priority
    settings: Settings

    @property
    def request(self) -> tuple[bytes, bytes]:
        """As the process reads it: a line of JSON, and the graph."""
        settings = self.settings.model_dump(mode="json", include=set(_PASSED))
        settings["token"] = self.settings.token.get_secret_value()
        document = {
            "bytes": len(self.graph),
            "key": self.key,
            "cache": str(self.folder),
            "cache_bytes": round(self.settings.regions_gib * 2**30),
            "background": self.background,
            "settings": settings,
        }
        return json.dumps(document).encode() + b"\n", self.graph


class _Maker(Inherited):
    """A process that makes a library, for one context."""

    def __init__(self, command: Sequence[str], errors: BinaryIO | Any) -> None:
        super().__init__()
        path = os.pathsep.join(
            entry for entry in (str(_ROOT), os.environ.get("PYTHONPATH", "")) if entry
        )
        with unforked():
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": path},
            )

    def __enter__(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process.__enter__()

    def __exit__(self, *raised: Any) -> None:
        process, self._process = self._process, None
        assert process is not None
        process.__exit__(*raised)

    def after_fork(self) -> None:
        """Lets go of the pipes, by whose end the process sees that its caller is gone. The objects
        keep their numbers, and may hold what was not written yet."""
        if self._process is None:
            return
        nothing = os.open(os.devnull, os.O_RDWR)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                os.dup2(nothing, pipe.fileno(), inheritable=False)
        os.close(nothing)


def made(
    making: Making,
    note: Callable[[str], object] = lambda text: None,
    *,
    command: Sequence[str] = COMMAND,
    grace_s: float = GRACE_S,
) -> Path:
    """The path of the library, once a process has made it; `note` is called with how far it is.

    The process ends with this one, and `grace_s` after its budget at the latest. Raises
    TuningFailed and OSError.
    """
    limit_s = making.settings.seconds + grace_s
    overdue = threading.Event()
    with tempfile.TemporaryFile() as errors, _Maker(command, errors) as process:
        assert process.stdin is not None and process.stdout is not None

        def end() -> None:
            overdue.set()
            process.kill()

        timer = threading.Timer(limit_s, end)
        timer.daemon = True
        timer.start()
        try:
            with suppress(BrokenPipeError):  # it died, which its answer shows
                for part in making.request:
                    process.stdin.write(part)
                process.stdin.flush()
            # Standard input stays open meanwhile: it shows that we live.
            answer = _answer(process.stdout, note)
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
        finally:
            timer.cancel()
            process.kill()  # where reading failed
        errors.seek(0)
        said = " ".join(errors.read().decode("utf-8", "replace").split())[-_TAIL:]
    if overdue.is_set():
        raise TuningFailed(
            f"its process took more than {limit_s:g} s, {making.settings.seconds:g} s of them "
            f"are its budget"
        )
    if answer is None:
        raise TuningFailed(f"its process ended with status {process.returncode}: {said}")
    if "error" in answer:
        raise TuningFailed(answer["error"])
    return Path(answer["library"])


def _answer(lines: BinaryIO | Any, note: Callable[[str], object]) -> dict[str, Any] | None:
    """The last line of a process, unless it died before; those before are of its progress."""
    for line in lines:
        try:
            document = json.loads(line)
        except ValueError:
            return None
        if "progress" not in document:
            return dict(document)
        note(document["progress"])
    return None

"""Has the libraries of regions made, by processes that have a compiler and a database."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tuner.errors import TunerError
from tuner.models.graph import Graph, packed
from tuner.models.numerics import NumericsPolicy
from tuner.models.region_cache import CacheDamaged, RegionCache, region_key
from tuner.target.detect import parse_target
from tuner.torch.call import RegionCall
from tuner.torch.native import Layouts, native
from tuner.torch.options import Options
from tuner.torch.rebuilding import Function

_PASSED = ("data_dir", "db", "artifacts", "threads", "trials", "seconds", "numerics", "max_error")
_TAIL = 400  # characters that are shown of a dead process's standard error
_ROOT = Path(__file__).resolve().parents[2]


class TuningFailed(TunerError):
    """A region's library could not be made."""

    code = "no_kernel"


class Background:
    """A thread that has one library made after the other."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, work: Callable[[], None]) -> None:
        """Does the work after what was added before. It raises nothing."""
        self._waiting.put(work)
        with self._lock:
            # The thread of a process is not there after a fork.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="tuner", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            self._waiting.get()()


@dataclass(frozen=True)
class RegionSupply:
    """The library of one region: from the cache, or tuned as the options say."""

    graph: Graph
    layouts: Layouts
    options: Options
    background: Background

    @cached_property
    def cache(self) -> RegionCache:
        return RegionCache(folder=self.options.settings.data_dir / "torch")

    @cached_property
    def key(self) -> str:
        settings = self.options.settings
        return region_key(
            self.graph,
            parse_target(settings.target).key,
            settings.threads,
            settings.numerics,
            settings.max_error,
        )

    @cached_property
    def tolerance(self) -> float:
        settings = self.options.settings
        return NumericsPolicy.of(settings.numerics, settings.max_error).tolerance(self.graph)

    def load(self, path: Path, failed: Callable[[str], Function]) -> Function:
        return native(path, self.graph, self.layouts, failed)

    def discard(self) -> None:
        self.cache.discard(self.key)

    def begin(self, call: RegionCall) -> None:
        try:
            path = self.cache.find(self.key)
        except CacheDamaged as error:
            self.discard()
            call.give_up("cache", f"{error}; the next process will")
            return
        except OSError as error:
            call.give_up("cache", f"its library cannot be read: {error}")
            return
        if path is not None:
            call.offer(path)
        elif self.options.tune == "now":
            self._tune(call)
        elif self.options.tune == "background":
            self.background.add(lambda: self._tune(call))

    def _tune(self, call: RegionCall) -> None:
        try:
            call.offer(self._made())
        except (TuningFailed, OSError) as error:
            call.give_up("tuning", f"it could not be tuned: {error}")

    def _made(self) -> Path:
        """The path of the library, when it is made. Raises TuningFailed and OSError."""
        content, settings = packed(self.graph), self.options.settings
        request = {
            "bytes": len(content),
            "key": self.key,
            "cache": str(self.cache.folder),
            "background": self.options.tune == "background",
            "settings": settings.model_dump(mode="json", include=set(_PASSED)),
        }
        path = os.pathsep.join(
            entry for entry in (str(_ROOT), os.environ.get("PYTHONPATH", "")) if entry
        )
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                [sys.executable, "-P", "-m", "tuner.app.models.region_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": path},
            ) as process,
        ):
            assert process.stdin is not None and process.stdout is not None
            with suppress(BrokenPipeError):  # it died, which its answer shows
                process.stdin.write(json.dumps(request).encode() + b"\n" + content)
                process.stdin.flush()
            answer = process.stdout.read()  # standard input stays open: it shows that we live
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
            errors.seek(0)
            said = " ".join(errors.read().decode("utf-8", "replace").split())[-_TAIL:]
        if not answer.endswith(b"}\n"):
            raise TuningFailed(f"its process ended with status {process.returncode}: {said}")
        document = json.loads(answer)
        if "error" in document:
            raise TuningFailed(document["error"])
        return Path(document["library"])

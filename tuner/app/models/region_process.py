"""Makes the library of one region, for a process that has neither compiler nor database:
`python -m tuner.app.models.region_process`.

Standard input has a line of JSON, then the packed graph, and stays open as long as the
caller lives. Standard output has lines of JSON: `progress`, a text, and last `library`, the
path in the cache, or `error`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuner.app.models.region_library import region_library
from tuner.app.models.region_progress import RegionProgress
from tuner.errors import TunerError
from tuner.models.graph_archive import unpacked
from tuner.models.library.region_cache import RegionCache
from tuner.settings import load_settings
from tuner.workers.jobs.orchestrator import Interruption


def main() -> None:
    """Answers the request on standard input."""
    out = os.dup(1)
    os.dup2(2, 1)  # libraries may print

    def say(**line: str) -> None:
        with suppress(BrokenPipeError):  # nobody reads it any more
            os.write(out, json.dumps(line).encode() + b"\n")

    stream = sys.stdin.buffer
    request = json.loads(stream.readline())
    content = stream.read(request["bytes"])
    if request["background"]:
        os.nice(19)
    left = threading.Event()
    threading.Thread(target=_watch, args=(left,), daemon=True).start()
    progress = RegionProgress(lambda text: say(progress=text))
    try:
        path = _made(request, content, left, progress)
    except (TunerError, OSError) as error:
        say(error=str(error) or type(error).__name__)
    else:
        say(library=str(path))


def _watch(left: threading.Event) -> None:
    """Notes that the caller has closed standard input, or died."""
    os.read(0, 1)  # not by the stream, whose lock a thread would hold at the end
    left.set()


def _made(
    request: dict[str, Any], content: bytes, left: threading.Event, progress: RegionProgress
) -> Path:
    """The library's path; another process may have made it meanwhile."""
    cache, key = RegionCache(folder=Path(request["cache"])), request["key"]
    settings = load_settings(request["settings"], given_as="option {}").values
    with cache.lock(key):
        path = cache.find(key)
        if path is not None:
            return path
        library = region_library(
            unpacked(content),
            settings,
            observer=progress.observe,
            interrupt=lambda: Interruption.CANCEL if left.is_set() else None,
        )
        return cache.keep(key, library)


if __name__ == "__main__":
    main()

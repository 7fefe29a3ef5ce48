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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuner.errors import TunerError
from tuner.models.library.region_cache import RegionCache


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
    try:
        path = _made(request, content, left.is_set, lambda text: say(progress=text))
    except (TunerError, OSError) as error:
        say(error=str(error) or type(error).__name__)
    else:
        say(library=str(path))


def _watch(left: threading.Event) -> None:
    """Notes that the caller has closed standard input, or died."""
    os.read(0, 1)  # not by the stream, whose lock a thread would hold at the end
    left.set()


def _made(
    request: dict[str, Any],
    content: bytes,
    is_over: Callable[[], bool],
    report: Callable[[str], object],
) -> Path:
    """The library's path; another process may have made it meanwhile."""
    cache = RegionCache(folder=Path(request["cache"]), most_bytes=request["cache_bytes"])
    key = request["key"]
    report("waiting")
    with cache.lock(key, is_over):
        path = cache.find(key)
        if path is not None:
            return path
        # Behind the lock, since several processes may wait for it.
        from tuner.app.models.region_making import library_of  # noqa: PLC0415

        return cache.keep(key, library_of(content, request["settings"], report, is_over))


if __name__ == "__main__":
    main()

"""Triton's results of `@triton.autotune` in a service: `python -m tuner.integrations.triton
push` or `pull`.

With `TRITON_CACHE_AUTOTUNING=1` Triton keeps what it timed for a kernel and a tuning key as
`FOLDER/HASH/NAME.autotune.json` in its cache: `{"key", "configs_timings": [[config, timings]]}`,
a config by its attributes and timings in milliseconds, a number or a median with quantiles. The
hash is of Triton's version, the GPU, the kernel's source, the key and the configs, so that a file
of another machine is read by those that would have written it. The service and its key are those
of the settings `server` and `token`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tuner.api.entry_schemas import MOST_CONTENT
from tuner.client import Client
from tuner.errors import TunerError, UsageError
from tuner.settings import load_settings

STORE = "triton"
SUFFIX = ".autotune.json"
_HASH = re.compile(r"[A-Z2-7]{52}|[0-9a-f]{64}")  # of SHA-256, as Triton's versions write it
_NAME = re.compile(r"\w{1,150}")  # a function's, cut off by Triton
_OTHERS = {"num_warps": int, "num_ctas": int, "num_stages": int, "maxnreg": int, "ir_override": str}


def push(client: Client, folder: Path) -> int:
    """Keeps the results of a cache; returns how many were new or other. Raises ServiceError."""
    count = 0
    for path in sorted(folder.glob(f"*/*{SUFFIX}")):
        if not _HASH.fullmatch(path.parent.name):
            continue
        content = _encoded(path)
        if content is None:
            continue
        held = client.entry(STORE, path.parent.name)
        if held is None or held.content != content:
            client.put_entry(STORE, path.parent.name, content)
            count += 1
    return count


def pull(client: Client, folder: Path) -> int:
    """Writes results that a cache has not; returns how many. Raises ServiceError, OSError.

    Others may have put anything into the store: what is no result of Triton's is left out.
    """
    count = 0
    for hashed, name, content in _results(client):
        path = folder / hashed / f"{name}{SUFFIX}"
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{name}.{os.getpid()}.part")
        part.write_text(content, encoding="utf-8")
        part.replace(path)
        count += 1
    return count


def _results(client: Client) -> Iterator[tuple[str, str, str]]:
    """The hash, the name and the file's content of each result in the store."""
    for entry in client.entries(STORE):
        try:
            document = json.loads(entry.content)
            name, result = document["name"], document["result"]
        except (ValueError, KeyError, TypeError):
            continue
        if not (_HASH.fullmatch(entry.key) and isinstance(name, str) and _NAME.fullmatch(name)):
            continue
        if is_result(result):
            yield entry.key, name, json.dumps(result)


def _encoded(path: Path) -> str | None:
    """A file as it is kept; None for what is no result, or too long to keep."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    name = path.name.removesuffix(SUFFIX)
    content = json.dumps({"name": name, "result": result}, sort_keys=True)
    is_kept = _NAME.fullmatch(name) and is_result(result) and len(content) <= MOST_CONTENT
    return content if is_kept else None


def is_result(document: Any) -> bool:
    """Whether this is what Triton reads: plain configs with their timings, and nothing more."""
    if not isinstance(document, dict) or document.keys() != {"key", "configs_timings"}:
        return False
    pairs = document["configs_timings"]
    return (
        isinstance(document["key"], list)
        and isinstance(pairs, list)
        and bool(pairs)
        and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
        and all(_is_config(config) and _is_timing(timing) for config, timing in pairs)
    )


def _is_config(config: Any) -> bool:
    if not isinstance(config, dict) or not isinstance(config.get("kwargs"), dict):
        return False
    if not all(type(value) in (bool, int, float, str) for value in config["kwargs"].values()):
        return False
    return all(
        name == "kwargs" or value is None or (name in _OTHERS and type(value) is _OTHERS[name])
        for name, value in config.items()
    )


def _is_timing(timing: Any) -> bool:
    times = timing if isinstance(timing, list) else [timing]
    return bool(times) and all(type(time) in (int, float) for time in times)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exchanges the results of a cache with the service that the settings name."""
    parser = argparse.ArgumentParser(description="Keeps Triton's tuning results in a service.")
    parser.add_argument("direction", choices=["push", "pull"])
    parser.add_argument("folder", nargs="?", type=Path, help="Triton's cache")
    options = parser.parse_args(arguments)
    default = os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache"
    folder = options.folder or Path(default)
    try:
        settings = load_settings().values
        if not settings.server:
            raise UsageError("no service is named; set TUNER_SERVER to its address")
        with Client(settings.server, key=settings.token.get_secret_value() or None) as client:
            count = (push if options.direction == "push" else pull)(client, folder)
    except (TunerError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{count} results {'kept' if options.direction == 'push' else 'written'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The runtime under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer,
driven from many threads and forks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tuner.runtime.link import HEADERS, SOURCES, runtime_sources

HERE = Path(__file__).parent
# An allocation that cannot succeed is part of the test; ThreadSanitizer cannot follow a
# fork of several threads.
RUNS = [("address,undefined", ["forks"]), ("thread", []), ("none", ["forks", "load"])]


@pytest.mark.slow  # the runtime is compiled anew for each
@pytest.mark.parametrize(("sanitizer", "arguments"), RUNS, ids=[run[0] for run in RUNS])
def test_runtime_is_clean_under(sanitizer: str, arguments: list[str], tmp_path: Path) -> None:
    for name in (*SOURCES, *HEADERS):
        (tmp_path / name).write_text(runtime_sources()[name])
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I."]
    flags += [] if sanitizer == "none" else [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    sources = [*SOURCES, str(HERE / "kernels.c"), str(HERE / "driver.c")]
    built = subprocess.run(
        ["cc", *flags, *sources, "-lm", "-lpthread", "-o", "driver"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if built.returncode != 0 and "cannot find" in built.stderr and "san" in built.stderr:
        pytest.skip(f"this compiler comes without -fsanitize={sanitizer}")
    assert built.returncode == 0, built.stderr
    options = "allocator_may_return_null=1:exitcode=66"
    run = subprocess.run(
        [tmp_path / "driver", *arguments], env={**os.environ, "ASAN_OPTIONS": options,
        "TSAN_OPTIONS": options},
        capture_output=True, text=True, check=False, timeout=150,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]

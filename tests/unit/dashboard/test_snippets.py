"""Snippets carry the names of what is downloaded; the C one compiles."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tuner.api.dashboard.snippets import Delivery, delivery, snippets
from tuner.workload.spec import parse_spec


def archive(manifest: object) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        content = json.dumps(manifest).encode()
        entry = tarfile.TarInfo("mm/manifest.json")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(buffer.getvalue())


def test_names_come_from_the_archives_manifest() -> None:
    delivered = delivery(archive({"name": "mm", "functions": [{"symbol": "matmul_m4"}]}), "other")
    assert (
        delivered == Delivery(library="mm", symbol="matmul_m4") and delivered.extension == "tar.gz"
    )
    texts = dict(
        snippets("k_1", delivered, parse_spec("matmul:M=4,N=5,K=6"), "http://127.0.0.1:8077")
    )
    assert "tar -xzf k_1.tar.gz" in texts["curl"] and "import mm as tuned" in texts["Python"]
    assert "#include <mm.h>" in texts["C"] and "mm::mm" in texts["CMake"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"no archive", id="no archive"),
        pytest.param(archive([]), id="no manifest"),
        pytest.param(
            archive({"name": "a b", "functions": [{"symbol": "x;y"}]}), id="strange names"
        ),
    ],
)
def test_a_strange_archive_is_offered_as_a_bare_library(content: bytes) -> None:
    assert delivery(content, "f") == Delivery(library=None, symbol="f")
    assert delivery(content, "no name") == Delivery(library=None, symbol="kernel")


def test_the_c_snippet_compiles(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    texts = dict(
        snippets(
            "k_1", delivery(None, "f"), parse_spec("matmul:M=4,N=5,K=6,dtype=int8"), "http://h"
        )
    )
    (tmp_path / "main.c").write_text(texts["C"])
    subprocess.run(
        [compiler, "-std=c11", "-Wall", "-Werror", "-c", "main.c"],
        cwd=tmp_path,
        check=True,
        timeout=60,
    )

"""The manifest: exactly the contract's, and read back with suspicion."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tuner.export.errors import ManifestError
from tuner.export.kernel import ExportKernel
from tuner.export.library import export_library
from tuner.export.manifest import read_manifest, verify_hashes
from tuner.runtime.toolchain import Toolchain


@pytest.fixture(scope="module")
def exported(
    tmp_path_factory: pytest.TempPathFactory,
    kernel: Callable[..., ExportKernel],
    toolchain: Toolchain,
) -> Path:
    directory = tmp_path_factory.mktemp("export") / "kit"
    export_library([kernel()], directory, "kit", toolchain=toolchain)
    return directory


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def edit(directory: Path, **changes: Any) -> None:
    path = directory / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_the_document_is_the_contracts(exported: Path) -> None:
    document = json.loads((exported / "manifest.json").read_text())
    assert set(document) == {"schema", "name", "library", "files", "functions"}
    assert (document["schema"], document["name"], document["library"]) == (
        1,
        "kit",
        "lib/libkit.so",
    )
    for path in (
        "lib/libkit.so",
        "lib/libkit.a",
        "include/kit.h",
        "kit/__init__.py",
        "lib/pkgconfig/kit.pc",
    ):
        assert document["files"][path] == sha256((exported / path).read_bytes()).hexdigest()
    listed = {*document["files"], "manifest.json"}
    assert listed == {
        path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file()
    }
    assert document["functions"] == [
        {
            "symbol": "elementwise_n1024_double",
            "workload": {
                "key": "ab" * 32,
                "op": "elementwise",
                "params": {"N": 1024, "act": "double", "dtype": "float32"},
                "constants": [],
                "numerics": "strict",
            },
            "arguments": [
                {"name": "X", "dtype": "float32", "shape": [1024], "role": "in"},
                {"name": "Y", "dtype": "float32", "shape": [1024], "role": "out"},
            ],
            "target": {"key": "cd" * 32, "kind": "cpu", "name": "a CPU"},
            "isa": [],
            "threads": 2,
            "median_s": 1e-6,
            "ci95_s": [0.9e-6, 1.1e-6],
            "verified": True,
            "max_rel_error": 0.0,
            "provenance": {
                "job": "j1",
                "trial": 3,
                "trace": [["split", [4, 8]]],
                "versions": {"tuner": "0.1"},
            },
        }
    ]


def test_what_was_written_verifies(exported: Path) -> None:
    manifest = verify_hashes(exported)
    assert manifest.document() == json.loads((exported / "manifest.json").read_text())


def test_any_flipped_byte_is_found(copy: Path) -> None:
    for path in json.loads((copy / "manifest.json").read_text())["files"]:
        content = (copy / path).read_bytes()
        (copy / path).write_bytes(bytes([content[0] ^ 1]) + content[1:])
        with pytest.raises(ManifestError, match="was altered"):
            verify_hashes(copy)
        (copy / path).write_bytes(content)
    verify_hashes(copy)


def test_a_missing_or_truncated_file_is_found(copy: Path) -> None:
    library = copy / "lib" / "libkit.so"
    library.write_bytes(library.read_bytes()[:-1])
    with pytest.raises(ManifestError, match="was altered"):
        verify_hashes(copy)
    library.unlink()
    with pytest.raises(ManifestError, match=r"libkit\.so: No such file"):
        verify_hashes(copy)


def test_links_are_refused(copy: Path, tmp_path: Path) -> None:
    header = copy / "include" / "kit.h"
    shutil.move(header, tmp_path / "kit.h")
    header.symlink_to(tmp_path / "kit.h")
    with pytest.raises(ManifestError, match="is a link"):
        verify_hashes(copy)


@pytest.mark.parametrize(
    "path",
    [
        "../outside",
        "/etc/passwd",
        "a/../../b",
        "a//b",
        "./a",
        "",
        "a\\..\\b",
        "C:/x",
        "a\n",
        "manifest.json",
        "a/..",
    ],
)
def test_paths_that_leave_the_directory_are_refused(copy: Path, path: str) -> None:
    edit(copy, files={**json.loads((copy / "manifest.json").read_text())["files"], path: "0" * 64})
    with pytest.raises(ManifestError, match="no path inside"):
        read_manifest(copy)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "schema 1"),
        ({"name": 3}, "texts"),
        ({"files": []}, "files must be an object"),
        ({"functions": {}}, "functions a list"),
        ({"functions": [3]}, "function 0 is not an object"),
        ({"functions": [{"symbol": "f"}]}, "function 0: workload is missing"),
        ({"files": {"a": "xyz"}}, "no SHA-256"),
        ({"library": "lib/other.so"}, "not among its files"),
        (
            {"library": "other.wasm", "files": {"other.wasm": "0" * 64}},
            "is not the library of an export",
        ),
    ],
)
def test_malformed_manifests_are_refused(copy: Path, changes: dict[str, Any], message: str) -> None:
    edit(copy, **changes)
    with pytest.raises(ManifestError, match=message):
        read_manifest(copy)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 200_000])
def test_what_is_no_json_object_is_refused(copy: Path, content: bytes) -> None:
    (copy / "manifest.json").write_bytes(content)
    with pytest.raises(ManifestError):
        read_manifest(copy)


def test_a_directory_without_manifest_is_no_export(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no exported library"):
        read_manifest(tmp_path)


BAD_FUNCTIONS: dict[str, dict[str, Any]] = {
    "no time": {"median_s": float("inf")},
    "a time no float holds": {"median_s": 10**400},
    "a time before 0": {"ci95_s": [-1.0, 1.0]},
    "a time that is not": {"ci95_s": [float("nan"), 1.0]},
    "a symbol with a path": {"symbol": "../run"},
    "too many threads": {"threads": 100_000},
    "a feature that is none": {"isa": [["avx2"]]},
    "a dtype that is none": {
        "arguments": [{"name": "X", "dtype": ["float32"], "shape": [1], "role": "in"}]
    },
    "a shape that is none": {
        "arguments": [{"name": "X", "dtype": "float32", "shape": [True, -1], "role": "in"}]
    },
}


@pytest.mark.parametrize("case", BAD_FUNCTIONS)
def test_functions_that_cannot_be_are_refused(copy: Path, case: str) -> None:
    (function,) = json.loads((copy / "manifest.json").read_text())["functions"]
    edit(copy, functions=[{**function, **BAD_FUNCTIONS[case]}])
    with pytest.raises(ManifestError, match=r"function 0|not valid JSON"):
        read_manifest(copy)


def test_two_functions_of_one_symbol_are_refused(copy: Path) -> None:
    edit(copy, functions=json.loads((copy / "manifest.json").read_text())["functions"] * 2)
    with pytest.raises(ManifestError, match="one symbol"):
        read_manifest(copy)

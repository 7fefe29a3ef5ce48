"""Exported directories altered at random and on purpose: each change is one clear
refusal, and nothing outside is written."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tuner.export.directory import check_replaceable
from tuner.export.errors import ExportRefused, ManifestError
from tuner.export.kernel import ExportKernel
from tuner.export.library import export_library
from tuner.export.manifest import read_manifest, verify_hashes
from tuner.export.signature import Signer
from tuner.runtime.toolchain import Toolchain

Make = Callable[..., ExportKernel]
SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, kernel: Make, toolchain: Toolchain) -> Path:
    directory = tmp_path_factory.mktemp("hostile") / "kit"
    export_library([kernel()], directory, "kit", toolchain=toolchain, signer=SIGNER)
    return directory


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def tree(root: Path) -> dict[str, str]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {
        path.relative_to(root).as_posix(): sha256(path.read_bytes()).hexdigest() for path in files
    }


def test_any_flipped_bit_of_any_file_is_refused(copy: Path) -> None:
    random_ = random.Random(7)
    for path in sorted(path for path in copy.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for place in {0, len(content) - 1, *(random_.randrange(len(content)) for _ in range(6))}:
            flipped = bytearray(content)
            flipped[place] ^= 1 << random_.randrange(8)
            path.write_bytes(flipped)
            with pytest.raises(ManifestError):
                verify_hashes(copy)
        path.write_bytes(content)
    verify_hashes(copy)


def test_manifests_cut_or_changed_anywhere_are_read_or_refused_but_never_crash(copy: Path) -> None:
    """Without the signature, which would refuse them all: the reader itself has to stand it."""
    path, random_ = copy / "manifest.json", random.Random(11)
    content = path.read_bytes()
    for place in range(0, len(content), 37):
        path.write_bytes(content[:place])
        with pytest.raises(ManifestError):
            read_manifest(copy)
    for _ in range(400):
        changed = bytearray(content)
        for _ in range(random_.randrange(1, 4)):
            changed[random_.randrange(len(changed))] = random_.choice(b'{}[]",:-0919eE.\\\x00\xff/')
        path.write_bytes(changed)
        try:
            assert read_manifest(copy).name
        except ManifestError as error:
            assert str(path) in str(error)


def test_values_of_other_types_break_nothing(copy: Path) -> None:
    path = copy / "manifest.json"
    document = json.loads(path.read_text())

    def places(value: object, path: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
        steps = (
            value.items()
            if isinstance(value, dict)
            else enumerate(value)
            if isinstance(value, list)
            else ()
        )
        return [path, *(place for key, inner in steps for place in places(inner, (*path, key)))]

    for place in places(document, ()):
        if "provenance" in place or "workload" in place:
            continue  # those who use them check them
        others: tuple[object, ...] = (None, [], {}, -1, "x", True, 10**400, [[[]]])
        for other in others:
            changed = json.loads(json.dumps(document))
            inner = changed
            for step in place[:-1]:
                inner = inner[step]
            if not place:
                changed = other
            else:
                inner[place[-1]] = other
            path.write_text(json.dumps(changed))
            try:
                read_manifest(copy)
            except ManifestError:
                continue


@pytest.mark.parametrize("special", ["link to a folder", "pipe", "device", "folder", "loop"])
def test_what_is_no_plain_file_is_refused(copy: Path, tmp_path: Path, special: str) -> None:
    header = copy / "include" / "kit.h"
    header.unlink()
    match special:
        case "link to a folder":
            shutil.move(copy / "include", tmp_path / "elsewhere")
            (copy / "include").symlink_to(tmp_path / "elsewhere")
        case "pipe":
            os.mkfifo(header)
        case "device":
            header.symlink_to("/dev/zero")
        case "folder":
            header.mkdir()
        case _:
            header.symlink_to(header)
    with pytest.raises(ManifestError):
        verify_hashes(copy)


def test_nothing_outside_is_written_or_replaced(copy: Path, tmp_path: Path) -> None:
    """A manifest that claims files elsewhere: verifying reads none of them, exporting
    over it is refused."""
    outside = tmp_path / "precious.txt"
    outside.write_text("mine")
    document = json.loads((copy / "manifest.json").read_text())
    for name in (
        "../precious.txt",
        str(outside),
        "include/../../precious.txt",
        "include/..\\..\\precious.txt",
    ):
        files = {**document["files"], name: sha256(b"mine").hexdigest()}
        (copy / "manifest.json").write_text(json.dumps({**document, "files": files}))
        before = tree(tmp_path)
        with pytest.raises(ManifestError, match="no path inside"):
            verify_hashes(copy)
        with pytest.raises(ExportRefused, match="no earlier export"):
            check_replaceable(copy)
        assert tree(tmp_path) == before


PROGRAM = """
import os, sys
os.umask(int(sys.argv[2]))
from pathlib import Path
from tests.support.relu_kernel import relu_kernel
from tuner.export.library import export_library
export_library([relu_kernel()], Path(sys.argv[1]), "kit")
"""


def test_the_same_bytes_from_another_process_folder_and_locale(tmp_path: Path) -> None:
    for name, seed, zone, umask in (("one", "1", "UTC", "2"), ("two", "4242", "Asia/Tokyo", "63")):
        (tmp_path / name).mkdir()
        environment = {
            "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed,
            "TZ": zone, "HOME": str(tmp_path / name),
        }  # fmt: skip
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / name / "kit"), umask]
        subprocess.run(command, env=environment, cwd=tmp_path / name, check=True, timeout=120)
    assert tree(tmp_path / "one" / "kit") == tree(tmp_path / "two" / "kit")

"""Exports for several architectures in one directory, and what CMake finds in it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.export.combined import combine
from tuner.export.errors import ExportRefused, ManifestError
from tuner.export.kernel import ExportKernel
from tuner.export.library import export_library
from tuner.export.manifest import verify_hashes
from tuner.runtime.toolchain import Toolchain

MACHINE_BYTE = 18  # of ELF's header, the lower one
OTHERS = {"aarch64": 183, "riscv64": 243}


@pytest.fixture
def here(tmp_path: Path, kernel: Callable[..., ExportKernel], toolchain: Toolchain) -> Path:
    export_library([kernel()], tmp_path / "here", "kit", toolchain=toolchain)
    return tmp_path / "here"


def made_for(
    architecture: str, kernel: Callable[..., ExportKernel], toolchain: Toolchain, export: Path
) -> Path:
    """An export whose library says that it is for another machine."""

    class Other(Toolchain):
        def shared(self, *arguments: object, **options: object) -> bytes:
            library = bytearray(super().shared(*arguments, **options))  # type: ignore[arg-type]
            library[MACHINE_BYTE] = OTHERS[architecture]
            return bytes(library)

    tools = Other(command=toolchain.command, identity=toolchain.identity, cache=toolchain.cache)
    export_library([kernel()], export, "kit", toolchain=tools)
    return export


def test_each_architecture_keeps_its_export_as_it_was(
    here: Path, tmp_path: Path, kernel: Callable[..., ExportKernel], toolchain: Toolchain
) -> None:
    arm = made_for("aarch64", kernel, toolchain, tmp_path / "arm")
    made = combine([here, arm], tmp_path / "kit")
    assert (made.name, made.architectures) == ("kit", ("aarch64", "x86_64"))
    for folder, export in (("x86_64", here), ("aarch64", arm)):
        manifest = verify_hashes(tmp_path / "kit" / folder)
        assert manifest == verify_hashes(export)
    assert sum(path.is_file() for path in (tmp_path / "kit").rglob("*")) == made.files


@pytest.mark.parametrize(
    ("processor", "folder"), [("aarch64", "aarch64"), ("AMD64", "x86_64"), ("riscv64", None)]
)
def test_cmake_finds_the_package_of_its_system(
    here: Path,
    tmp_path: Path,
    kernel: Callable[..., ExportKernel],
    toolchain: Toolchain,
    processor: str,
    folder: str | None,
) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    arm = made_for("aarch64", kernel, toolchain, tmp_path / "arm")
    combine([here, arm], tmp_path / "kit")
    script = tmp_path / "find.cmake"
    script.write_text(
        f"set(CMAKE_SYSTEM_PROCESSOR {processor})\n"
        "function(find_package)\nendfunction()\nfunction(add_library)\nendfunction()\n"
        "function(set_target_properties target)\n  message(STATUS ${ARGN})\nendfunction()\n"
        f'include("{tmp_path}/kit/cmake/kit-config.cmake")\n'
        'message(STATUS "${kit_NOT_FOUND_MESSAGE}")\n'
    )
    done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, check=True)
    if folder is None:
        assert "it is for aarch64, x86_64, and not for riscv64" in done.stdout
    else:
        assert f"{tmp_path}/kit/{folder}/lib/libkit.so" in done.stdout


def test_what_cannot_be_combined_is_refused_and_nothing_is_written(
    here: Path, tmp_path: Path, kernel: Callable[..., ExportKernel], toolchain: Toolchain
) -> None:
    arm, out = made_for("aarch64", kernel, toolchain, tmp_path / "arm"), tmp_path / "kit"
    other = tmp_path / "other"
    export_library([kernel()], other, "net", toolchain=toolchain)
    for exports, said in (
        ([here], "for several architectures"),
        ([here, here], "are both for x86_64"),
        ([arm, other], "kit in .*, net in "),
    ):
        with pytest.raises(ExportRefused, match=said):
            combine(exports, out)
    (arm / "include/kit.h").write_text("altered")
    with pytest.raises(ManifestError):
        combine([here, arm], out)
    assert not out.exists()
    with pytest.raises(ExportRefused, match="not empty"):
        combine([here, arm], here)

"""Placing an export: all or nothing, and never over what is not ours."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tuner.export import directory
from tuner.export.directory import check_replaceable, place
from tuner.export.errors import ExportError, ExportRefused
from tuner.export.kernel import ExportKernel
from tuner.export.library import export_library
from tuner.runtime.toolchain import LinkError, Toolchain

Make = Callable[..., ExportKernel]


def tree(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_same_kernels_give_the_same_bytes(
    tmp_path: Path, kernel: Make, toolchain: Toolchain
) -> None:
    for name in ("one", "two"):
        export_library(
            [kernel(), kernel("parallel", symbol="other_f")],
            tmp_path / name,
            "kit",
            toolchain=toolchain,
        )
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_an_earlier_export_is_replaced_whole(
    tmp_path: Path, kernel: Make, toolchain: Toolchain
) -> None:
    target = tmp_path / "out"
    target.mkdir()  # empty is fine too
    export_library([kernel()], target, "first", toolchain=toolchain)
    for made in (
        "first/__pycache__/loader.pyc",
        "build/lib/x",
        "dist/first.whl",
        "first.egg-info/PKG-INFO",
    ):
        (target / made).parent.mkdir(parents=True)
        (target / made).write_bytes(b"")
    export_library([kernel()], target, "second", toolchain=toolchain)
    assert not (target / "first").exists()
    assert (target / "lib" / "libsecond.so").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_other_peoples_files_are_left_alone(
    tmp_path: Path, kernel: Make, toolchain: Toolchain
) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "thesis.txt").write_text("mine")
    with pytest.raises(ExportRefused, match="not empty and no earlier export"):
        export_library([kernel()], target, "kit", toolchain=toolchain)
    assert tree(target) == {"thesis.txt": b"mine"}
    (target / "thesis.txt").unlink()
    export_library([kernel()], target, "kit", toolchain=toolchain)
    (target / "include" / "notes.txt").write_text("mine")
    before = tree(target)
    with pytest.raises(ExportRefused, match=r"holds include/notes\.txt"):
        export_library([kernel()], target, "kit", toolchain=toolchain)
    assert tree(target) == before


def test_links_to_folders_are_other_peoples_too(
    tmp_path: Path, kernel: Make, toolchain: Toolchain
) -> None:
    target, mine = tmp_path / "out", tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")
    export_library([kernel()], target, "kit", toolchain=toolchain)
    (target / "include" / "link").symlink_to(mine)
    with pytest.raises(ExportRefused, match=r"holds include/link"):
        export_library([kernel()], target, "kit", toolchain=toolchain)
    assert (mine / "thesis.txt").read_text() == "mine"


def test_files_and_links_are_no_directories(
    tmp_path: Path, kernel: Make, toolchain: Toolchain
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("file", "link"):
        with pytest.raises(ExportRefused, match="is not a directory"):
            export_library([kernel()], tmp_path / name, "kit", toolchain=toolchain)


def test_nothing_to_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportRefused, match="no kernels"):
        export_library([], tmp_path / "out", "kit")
    assert not (tmp_path / "out").exists()


def test_numbers_that_are_none_are_refused(
    tmp_path: Path, kernel: Make, toolchain: Toolchain
) -> None:
    for broken in (kernel(max_rel_error=float("nan")), kernel(provenance={"job": object()})):
        with pytest.raises(ExportRefused, match="cannot be written as JSON"):
            export_library([broken], tmp_path / "out", "kit", toolchain=toolchain)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_compiler_leaves_nothing(
    tmp_path: Path, kernel: Make, toolchain: Toolchain
) -> None:
    with pytest.raises(LinkError):
        export_library(
            [kernel(object_code=b"damaged")], tmp_path / "out", "kit", toolchain=toolchain
        )
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (1000, before[1])
    )  # fails a write in the middle of a file, as a full disk does
    try:
        with pytest.raises(ExportError, match=r"File too large.*nothing was changed"):
            place(tmp_path / "out", {"fine.txt": b"x", "large.bin": bytes(5000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_the_root_is_no_place_for_an_export() -> None:
    with pytest.raises(ExportRefused, match="/ is not empty and no earlier export"):
        check_replaceable(Path("/"))


def test_an_unwritable_parent_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportRefused, match=r"cannot be made: .*file is no folder"):
        place(tmp_path / "file" / "out", {"a": b""})


def test_a_rename_that_fails_puts_the_old_export_back(
    tmp_path: Path, kernel: Make, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    export_library([kernel()], target, "kit", toolchain=toolchain)
    before = tree(target)
    rename = Path.rename

    def fail_on_new(self: Path, to: str | os.PathLike[str]) -> Path:
        if self.name == "new":
            raise OSError(28, "No space left on device")
        return rename(self, to)

    # As on a file system that exchanges no folders.
    monkeypatch.setattr(directory, "_exchanged", lambda first, second: False)
    monkeypatch.setattr(Path, "rename", fail_on_new)
    with pytest.raises(ExportError, match="No space left on device"):
        place(target, {"a": b""})
    assert tree(target) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_exports_to_one_directory_at_a_time_leave_one_of_them_whole(
    tmp_path: Path, kernel: Make, toolchain: Toolchain
) -> None:
    target, exports = tmp_path / "out", []
    for name in ("first", "second"):
        export_library([kernel()], tmp_path / name, name, toolchain=toolchain)
        exports.append(tree(tmp_path / name))

    def place_often(files: dict[str, bytes]) -> int:
        """How often it was placed; where the other was quicker, it is refused."""
        placed = 0
        for _ in range(30):
            with suppress(ExportError, ExportRefused):
                place(target, files)
                placed += 1
        return placed

    with ThreadPoolExecutor(2) as threads:
        placed = list(threads.map(place_often, exports))
    assert min(placed) > 0 and tree(target) in exports
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "out", "second"]


def test_what_a_killed_export_left_is_removed_by_the_next(
    tmp_path: Path, kernel: Make, toolchain: Toolchain
) -> None:
    left = tmp_path / ".out.tuner-abc"
    (left / "new").mkdir(parents=True)
    os.utime(left, (1, 1))
    export_library([kernel()], tmp_path / "out", "kit", toolchain=toolchain)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]

"""Puts an export in place as a whole or not at all. It replaces only an earlier export."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path

from tuner.export.errors import ExportError, ExportRefused, ManifestError
from tuner.export.manifest import FILE, SIGNATURE_FILE, Manifest, read_manifest
from tuner.scratch import temporary_folder

# What building an export's own wheel and examples leaves behind, besides __pycache__
# and *.egg-info.
LEFTOVERS = (Path("build"), Path("dist"), Path("examples/build"))
UNLISTED_SHOWN = 100  # paths
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


def check_replaceable(directory: Path) -> None:
    """Checks that an export may be written to the path.

    Raises ExportRefused unless the path is free, an empty directory, or an earlier export
    without other files, in a folder where something can be made.
    """
    _check_parent(directory)
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise ExportRefused(
            f"{directory} is not a directory; name one that is new, empty, or an earlier export"
        )
    try:
        if not directory.exists() or not any(directory.iterdir()):
            return
    except OSError as error:
        raise ExportRefused(f"cannot look into {directory}: {error.strerror}") from error
    try:
        ours = {FILE, SIGNATURE_FILE, *read_manifest(directory).files}
    except ManifestError as error:
        raise ExportRefused(
            f"{directory} is not empty and no earlier export; name a new directory"
        ) from error
    for path in sorted(directory.rglob("*")):
        inside = path.relative_to(directory)
        if (
            (path.is_symlink() or not path.is_dir())
            and inside.as_posix() not in ours
            and not _left_over(inside)
        ):
            raise ExportRefused(
                f"{directory} holds {inside}, which is not of the export; move it away or name "
                f"a new directory"
            )


def _check_parent(directory: Path) -> None:
    """Checks where an export is put together, which is beside its directory."""
    parents = Path(os.path.abspath(directory)).parents
    try:
        nearest = next((path for path in parents if path.exists()), Path("/"))
        if not nearest.is_dir():
            raise ExportRefused(
                f"{directory} cannot be made: {nearest} is no folder; name another directory"
            )
    except OSError as error:
        raise ExportRefused(
            f"{directory} cannot be made: {error.strerror}; name another directory"
        ) from error
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ExportRefused(
            f"{directory} cannot be made: no permission to write in {nearest}; name another "
            f"directory"
        )


def unlisted_files(directory: Path, manifest: Manifest) -> list[str]:
    """Files in the directory that the manifest does not list, at most UNLISTED_SHOWN.

    What building the export leaves behind is not counted.
    """
    ours = {FILE, SIGNATURE_FILE, *manifest.files}
    paths = (path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())
    names = (path.relative_to(directory) for path in paths)
    foreign = (
        name.as_posix() for name in names if name.as_posix() not in ours and not _left_over(name)
    )
    return sorted(islice(foreign, UNLISTED_SHOWN))


def _left_over(inside: Path) -> bool:
    """Whether the path below the export is one that building its parts leaves behind."""
    by_python = "__pycache__" in inside.parts or inside.parts[0].endswith(".egg-info")
    return by_python or any(inside.is_relative_to(folder) for folder in LEFTOVERS)


def place(directory: Path, files: Mapping[str, bytes]) -> None:
    """Writes files, given by path, as the whole content of a directory.

    They are written beside it and put into its place at once: whoever is killed meanwhile
    leaves one export or the other. Raises ExportRefused and ExportError, and then leaves
    what was there.
    """
    directory = Path(os.path.abspath(directory))
    try:
        check_replaceable(directory)
        directory.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(f".{directory.name}.tuner-", directory.parent) as scratch:
            fresh = scratch / "new"
            for name, content in files.items():
                path = fresh / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            _swap(directory, fresh, scratch / "old")
    except OSError as error:
        raise ExportError(
            f"cannot write the export to {directory}: {error}; nothing was changed, name "
            f"another folder"
        ) from error


def _swap(directory: Path, fresh: Path, old: Path) -> None:
    """Puts `fresh` into the place of `directory`, what was there aside, or changes nothing."""
    if not directory.exists():
        try:
            fresh.rename(directory)
            return
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            # Another export came first.
    if _exchanged(fresh, directory):
        return
    directory.rename(old)
    try:
        fresh.rename(directory)
    except OSError:
        old.rename(directory)
        raise


def _exchanged(first: Path, second: Path) -> bool:
    """Whether the system has exchanged two folders, in one step; some file systems cannot.

    Raises OSError.
    """
    renameat2: Callable[..., int] | None = getattr(
        ctypes.CDLL(None, use_errno=True), "renameat2", None
    )
    if renameat2 is None:
        return False
    paths = (os.fsencode(first), os.fsencode(second))
    if renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), str(second))

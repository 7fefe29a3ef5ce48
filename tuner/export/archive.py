"""An export as one reproducible `.tar.gz`.

Its bytes depend only on the kernels, the compiler and the key.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from tuner.export.errors import ExportError
from tuner.export.kernel import ExportKernel
from tuner.export.library import export_library
from tuner.export.signature import Signer
from tuner.runtime.toolchain import Toolchain
from tuner.scratch import temporary_folder

COMPRESSION = 6
FILE_MODE = 0o644


def export_archive(
    kernels: Sequence[ExportKernel],
    name: str,
    *,
    toolchain: Toolchain | None = None,
    signer: Signer | None = None,
) -> bytes:
    """The library `name`, as `export_library` writes it, in a folder of that name.

    Raises ExportRefused, LinkError and ExportError as `export_library` does.
    """
    try:
        with temporary_folder("tuner-scratch-export-") as scratch:
            directory = scratch / name
            export_library(kernels, directory, name, toolchain=toolchain, signer=signer)
            return packed(directory, name)
    except OSError as error:
        raise ExportError(f"cannot pack the export {name}: {error}") from error


def library_in(archive: bytes, name: str) -> bytes:
    """The shared library of an archive that `export_archive` made. Raises ExportError."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            member = tar.extractfile(f"{name}/lib/lib{name}.so")
            if member is not None:
                return member.read()
    except (tarfile.TarError, OSError, EOFError, KeyError, zlib.error) as error:
        raise ExportError(f"the archive of {name} cannot be read: {error}") from error
    raise ExportError(f"the archive of {name} has no library")


def packed(directory: Path, name: str) -> bytes:
    """The files of a directory as a .tar.gz, in a folder `name`."""
    return gzip.compress(_tar(directory, name), COMPRESSION, mtime=0)


def _tar(directory: Path, name: str) -> bytes:
    """The tar, with paths in order and without owners and times, so that it is reproducible."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(path for path in directory.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(f"{name}/{path.relative_to(directory).as_posix()}")
            content = path.read_bytes()
            entry.size, entry.mode = len(content), FILE_MODE
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()

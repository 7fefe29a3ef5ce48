"""Unpacks a downloaded kernel, after its hashes and its signature were checked.

The archive is untrusted: paths that leave the folder, links, devices, files that the
manifest does not list, and archives larger than any library are refused.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from tuner.client import Download
from tuner.export.directory import check_replaceable, place, unlisted_files
from tuner.export.errors import ManifestError
from tuner.export.manifest import Manifest, verify_hashes
from tuner.export.signature import is_signed
from tuner.scratch import temporary_folder

LARGEST_BYTES = 1 << 30  # of an unpacked library; one of a kernel has some hundred kilobytes
MOST_FILES = 10_000


def unpack(kernel: str, download: Download, directory: Path, *, public_key: str | None) -> Manifest:
    """Puts the library of one kernel into `directory` and returns its manifest.

    The manifest must be signed, and the archive by the same key; with `public_key` by
    that key. Raises ManifestError, ExportRefused for a directory that is no export,
    ExportError.
    """
    check_replaceable(directory)
    if not download.is_archive:
        raise ManifestError(
            f"kernel {kernel} was stored without its export; tune its workload again, and the "
            f"service makes one"
        )
    files = read_archive(kernel, download.content)
    with temporary_folder("tuner-scratch-download-") as scratch:
        for name, content in files.items():
            path = scratch / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        manifest = verify_hashes(scratch, public_key=public_key)
        unlisted = unlisted_files(scratch, manifest)
    if unlisted:
        raise ManifestError(
            f"the archive of kernel {kernel} holds {unlisted[0]!a}, which its manifest "
            f"does not list"
        )
    _check_whole(kernel, download, manifest)
    place(directory, files)
    return manifest


def read_archive(kernel: str, content: bytes) -> Mapping[str, bytes]:
    """The files of a gzipped tar, by path below its one folder. Raises ManifestError."""
    files: dict[str, bytes] = {}
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as unzipped:
            plain = unzipped.read(LARGEST_BYTES + 1)
        if len(plain) > LARGEST_BYTES:
            raise ManifestError(
                f"the archive of kernel {kernel} unpacks to more than {LARGEST_BYTES >> 30} GiB"
            )
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as tar:
            for member in tar:
                parts = PurePosixPath(member.name).parts
                inside = (
                    len(parts) > 1
                    and not member.name.startswith("/")
                    and ".." not in parts
                    and "\\" not in member.name
                )
                if not member.isreg() or not inside or len(files) >= MOST_FILES:
                    raise ManifestError(
                        f"the archive of kernel {kernel} holds {member.name!a}, which no "
                        f"library has"
                    )
                stream = tar.extractfile(member)
                assert stream is not None, "a regular file has content"
                files["/".join(parts[1:])] = stream.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ManifestError(f"the artifact of kernel {kernel} is no archive: {error}") from error
    return files


def _check_whole(kernel: str, download: Download, manifest: Manifest) -> None:
    """Checks the signature over the archive's hash. Raises ManifestError."""
    if manifest.public_key is None:
        return
    try:
        signature = base64.b64decode(download.signature or "", validate=True)
    except (ValueError, binascii.Error):
        signature = b""
    if not is_signed(download.sha256.encode("ascii"), signature, manifest.public_key):
        raise ManifestError(
            f"the archive of kernel {kernel} is not signed by {manifest.public_key}, which its "
            f"manifest names"
        )

"""Exports for several architectures in one directory, a folder each, with one CMake package.

Each folder is the export as it was, with its own manifest and signature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.export.directory import place
from tuner.export.errors import ExportRefused
from tuner.export.manifest import FILE, SIGNATURE_FILE, Manifest, open_regular, verify_hashes
from tuner.export.template import fill
from tuner.target.architectures.elf import architecture_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """What a directory of several exports holds."""

    name: str  # of the library, for every architecture
    architectures: tuple[str, ...]  # as the Linux kernel names them, which are the folders
    files: int


def combine(exports: Sequence[Path], directory: Path) -> Combined:
    """Writes the exports into `directory`, which must be new or empty, whole or not at all.

    Raises ManifestError for one that is no export or was altered, ExportRefused for exports
    of one architecture or of different names, and ExportError.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ExportRefused(f"{directory} is not empty; name a new directory")
    contents: dict[str, bytes] = {}
    origins: dict[str, Path] = {}
    names: dict[str, Path] = {}
    for export in exports:
        manifest = verify_hashes(export)
        files = _files(export, manifest)
        architecture = architecture_in(files[manifest.library])
        if architecture is None:
            raise ExportRefused(f"{export / manifest.library} is for no architecture known here")
        if architecture in origins:
            raise ExportRefused(
                f"{origins[architecture]} and {export} are both for {architecture}; a directory "
                f"has one export of each architecture"
            )
        origins[architecture] = export
        names.setdefault(manifest.name, export)
        contents |= {f"{architecture}/{path}": content for path, content in files.items()}
    if len(names) != 1 or len(origins) < 2:
        texts = ", ".join(f"{name} in {export}" for name, export in names.items())
        raise ExportRefused(
            f"libraries of one name for several architectures are combined, not {texts}; export "
            f"each with the same --name"
        )
    (name,) = names
    architectures = tuple(sorted(origins))
    package = fill("combined.cmake.in", name=name, architectures=", ".join(architectures))
    contents[f"cmake/{name}-config.cmake"] = package.encode()
    place(directory, contents)
    return Combined(name=name, architectures=architectures, files=len(contents))


def _files(export: Path, manifest: Manifest) -> dict[str, bytes]:
    """All files of an export by their paths in it, read once more."""
    listed = [*manifest.files, FILE]
    if (export / SIGNATURE_FILE).is_file():
        listed.append(SIGNATURE_FILE)
    contents = {}
    for path in listed:
        with open_regular(export / path) as file:
            contents[path] = file.read()
    return contents

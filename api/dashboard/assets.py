"""Style, scripts and icon of the pages, read once from the package.

Their hash is part of the address, so that browsers never use stale copies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
# in order; drawings alone need the first two
STYLESHEETS = ("colours.css", "drawings.css", "style.css")
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    content: bytes
    media_type: str
    version: str  # of the content, for the address


def read_assets() -> Mapping[str, Asset]:
    """The assets by file name, with one version for all, since scripts import each other."""
    files = {
        path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in TYPES
    }
    version = hashlib.sha256(b"".join(files.values())).hexdigest()[:12]
    return {
        name: Asset(content=data, media_type=TYPES[Path(name).suffix], version=version)
        for name, data in files.items()
    }

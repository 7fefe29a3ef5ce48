"""Archives that the product hands out, unpacked as a user would."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path


def unpack(content: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        # What `filter="data"` says, which Python takes since 3.11.4 only.
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)

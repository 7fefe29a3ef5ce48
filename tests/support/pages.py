"""The pages of Markdown, and the code that they quote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
_FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def code_of(page: Path) -> Iterator[str]:
    """Each block of code, with lines that a backslash continues made one, and each span of code
    in prose as one line."""
    text = page.read_text("utf-8")
    for block in _FENCED.finditer(text):
        yield re.sub(r"\s*\\\n\s*", " ", block[0])
    for span in re.findall(r"`([^`]+)`", _FENCED.sub("", text)):
        yield " ".join(span.split())

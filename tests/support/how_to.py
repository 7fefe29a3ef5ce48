"""Carries out the how-to pages of the documentation on a copy of the source.

A page's code is in fenced blocks. A Python block whose first line is `# PATH` is a new
file. A diff block begins with `+++ PATH`; its lines without a plus are what stands in the
file now, exactly once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ("tuner", "api", "db", "workers", "tests")
FENCED = re.compile(r"^( *)```(python|diff)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def carry_out(page: str, folder: Path) -> tuple[Path, list[str]]:
    """Applies the page to a copy of the source in `folder`; its root and the paths edited."""
    root = folder / "source"
    for name in SOURCE:
        # With what is compiled of it; names with a number at the end are files half written.
        ignored = shutil.ignore_patterns("*.pyc.*", "tables")
        shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=ignored)
    shutil.copytree(ROOT / "docs/reference", root / "docs/reference")
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    edited = []
    for language, path, text in blocks((ROOT / "docs/how-to" / page).read_text()):
        edited.append(path)
        if language == "python":
            assert not (root / path).exists(), f"{path} is there already"
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        else:
            (root / path).write_text(changed((root / path).read_text(), text, path))
    return root, edited


def blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """Language, path and content of each block that names a file."""
    for _, language, content in FENCED.findall(text):
        first, _, rest = dedent(content).partition("\n")
        named = re.fullmatch(r"(?:#|\+\+\+) (\S+\.\w+)", first)
        if named:
            yield language, named[1], rest


def changed(before: str, diff: str, path: str) -> str:
    """The file after the diff. A line is preceded by a plus, a minus or a space."""
    lines = [line or " " for line in diff.splitlines()]
    old = "".join(f"{line[1:]}\n" for line in lines if line[0] != "+")
    new = "".join(f"{line[1:]}\n" for line in lines if line[0] != "-")
    assert before.count(old) == 1, f"{path} has these lines {before.count(old)} times:\n{old}"
    return before.replace(old, new)


def run(root: Path, *arguments: str, **environment: str) -> str:
    """What a Python process prints that works with the copy; its failure is the test's."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), **environment},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout

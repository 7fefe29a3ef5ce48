"""The tutorials, carried out: every command and program of a page, in its order, as a
reader types them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# One run of workers at a time: they share the machine's cores.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.xdist_group("fleet")]

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r'^```(\w+)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
COMMANDS = {"tuner": "tuner", "python": "", "ray": "ray.scripts.scripts"}  # modules run as commands


def script_of(page: str, folder: Path) -> str:
    """A page's programs written to `folder`, and its commands as one shell script."""
    lines = ["set -eo pipefail"]
    for language, title, text in BLOCK.findall((ROOT / "docs/tutorials" / page).read_text()):
        if title:
            (folder / title).write_text(text)
        elif language == "python":
            lines.append(f"python - <<'PYTHON'\n{text}PYTHON\n")
        else:
            assert language == "sh", f"{page}: a block of {language} without a file's name"
            lines.append(text)
    return "\n".join(lines)


@pytest.mark.parametrize("page", ["first-kernel.md", "first-model.md", "first-cluster.md"])
def test_a_tutorial_works_as_it_stands(page: str, tmp_path: Path) -> None:
    tools = [tool for tool in ("cc", "curl", "openssl") if shutil.which(tool) is None]
    if tools:
        pytest.skip(f"not installed: {', '.join(tools)}")
    commands, work = tmp_path / "bin", tmp_path / "work"
    commands.mkdir()
    work.mkdir()
    for name, module in COMMANDS.items():
        command = commands / name
        run = f"{sys.executable} -m {module}" if module else sys.executable
        command.write_text(f'#!/bin/sh\nexec {run} "$@"\n')
        command.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if "TUNER_" not in name}
    environment |= {
        "HOME": str(tmp_path),
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }
    ended = subprocess.run(
        ["bash", "-c", script_of(page, work)],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    logs = "".join(path.read_text()[-2000:] for path in work.glob("*.log"))
    assert ended.returncode == 0, f"{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}\n{logs}"

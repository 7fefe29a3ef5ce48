"""The installed wheel in a project that has packages of the same names as our folders.

The product's folders `api`, `db` and `workers` stand beside `tuner` in the repository.
Installed, they are `tuner.api`, `tuner.db` and `tuner.workers`, and nothing else is
claimed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import tuner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("fleet")]

ROOT = Path(tuner.__file__).parent.parent
LIMIT_S = 180
PROGRAM = """
import api, db, workers  # the project's own
import numpy as np
import tuner

assert db.OWN and workers.OWN and api.OWN
kernel = tuner.tune("matmul:M=16,N=16,K=16", trials=2, seconds=60, threads=1, seed=1)
ones = np.ones((16, 16), np.float32)
assert np.allclose(kernel(ones, ones), 16)
print(tuner.__file__)
"""


def build(source: Path, hook: str, folder: Path) -> Path:
    """What a hook of the build backend makes of a source folder."""
    program = (
        "import sys, setuptools.build_meta as backend;"
        f" print(backend.{hook}(sys.argv[1]), file=sys.stderr)"
    )
    folder.mkdir()
    subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        cwd=source,
        check=True,
        capture_output=True,
        timeout=LIMIT_S,
    )
    (built,) = folder.iterdir()
    return built


def names(wheel: Path) -> set[str]:
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", str(wheel)],
        check=True,
        capture_output=True,
        text=True,
    )
    return {line.split()[0] for line in listed.stdout.splitlines()[1:]}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository without what a build would leave in it."""
    copy = tmp_path_factory.mktemp("source") / "tuner"
    needed = {"tuner", "api", "db", "workers", "pyproject.toml", "README.md", "LICENSE"}

    def ignored(folder: str, names: list[str]) -> set[str]:
        beside = set(names) - needed if Path(folder) == ROOT else set()
        return beside | {name for name in names if name == "__pycache__"}

    return Path(shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored))


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(source, "build_wheel", tmp_path_factory.mktemp("wheel") / "dist")


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and this one's dependencies, not the checkout."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install", "--no-deps",
         "--no-index", str(wheel)],
        check=True, timeout=LIMIT_S,
    )  # fmt: skip
    (site,) = folder.glob("lib/python*/site-packages")
    # A plain path: what this environment's own path files add, the checkout too, is left out.
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project, with an empty home beside it."""
    folder = tmp_path / "project"
    for name in ("api", "db", "workers"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("OWN = True\n")
    (folder / "program.py").write_text(PROGRAM)
    return folder


def run(project: Path, *command: str | Path) -> str:
    hidden = ("TUNER_", "PYTHON")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    environment |= {"XDG_DATA_HOME": str(project.parent), "XDG_CONFIG_HOME": str(project.parent)}
    ended = subprocess.run(
        command,
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_wheel_claims_one_name(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in names(wheel)}
    assert tops == {"tuner", f"tuner-{tuner.__version__}.dist-info"}


def test_a_wheel_of_the_source_archive_has_the_same_files(
    source: Path, wheel: Path, tmp_path: Path
) -> None:
    archive = build(source, "build_sdist", tmp_path / "archive")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("tuner-*")
    assert names(build(unpacked, "build_wheel", tmp_path / "again")) == names(wheel)


def test_it_tunes_from_a_project_with_packages_of_our_folders_names(
    python: Path, project: Path
) -> None:
    where = run(project, python, "program.py").strip()
    assert Path(where).is_relative_to(python.parents[1])


def test_its_command_tunes_there_too(python: Path, project: Path) -> None:
    limits = ("--trials", "2", "--seconds", "60", "--threads", "1", "--seed", "1")
    for command in ((python, "-m", "tuner"), (python.with_name("tuner"),)):
        answer = json.loads(run(project, *command, "--json", "tune", "softmax:M=7,N=9", *limits))
        assert answer["results"][0]["kernel"]["verified"]

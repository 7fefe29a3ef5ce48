"""The package lists in pyproject.toml are complete: every folder with code, every other
file, every version pinned once."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

import tuner
from tuner.cli.doctor import PINNED

ROOT = Path(tuner.__file__).parent.parent
LINKED = ("api", "db", "workers")  # folders beside `tuner` that are packages inside it, by a link


@pytest.fixture(scope="module")
def project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def files() -> list[Path]:
    """Every file of the package, by its path in the installed package."""
    own = [path.relative_to(ROOT) for path in (ROOT / "tuner").rglob("*") if path.is_file()]
    linked = [
        "tuner" / path.relative_to(ROOT)
        for name in LINKED
        for path in (ROOT / name).rglob("*")
        if path.is_file()
    ]
    return [
        path
        for path in (*own, *linked)
        if not any(part == "__pycache__" or part.startswith(".") for part in path.parts)
    ]


def test_folders_beside_the_package_are_linked_into_it() -> None:
    assert {name: (ROOT / "tuner" / name).resolve() for name in LINKED} == {
        name: ROOT / name for name in LINKED
    }


def test_every_folder_with_code_is_a_listed_package(project: Any) -> None:
    folders = {".".join(path.parent.parts) for path in files() if path.suffix == ".py"}
    assert folders == set(project["tool"]["setuptools"]["packages"])


def test_every_other_file_is_package_data(project: Any) -> None:
    patterns = [
        f"{package.replace('.', '/')}/{pattern}"
        for package, listed in project["tool"]["setuptools"]["package-data"].items()
        for pattern in listed
    ]
    others = [path.as_posix() for path in files() if path.suffix != ".py"]
    assert [
        path for path in others if not any(fnmatch(path, pattern) for pattern in patterns)
    ] == []


def test_direct_dependencies_and_constraints_agree(project: Any) -> None:
    extras = project["project"]["optional-dependencies"]
    listed = project["project"]["dependencies"] + extras["dev"] + extras["docs"]
    pinned = dict(re.sub(r"\[\w+\]", "", line).split("==") for line in listed)
    tested = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    named = {name.lower().replace("_", "-"): version for name, version in tested.items()}
    assert {
        name: version
        for name, version in pinned.items()
        if named.get(name.lower().replace("_", "-")) != version
    } == {}


def test_the_doctor_asks_for_what_is_pinned(project: Any) -> None:
    assert [
        f"{name}=={version}"
        for name, version in PINNED.items()
        if f"{name}=={version}" not in project["project"]["dependencies"]
    ] == []

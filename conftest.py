"""Plugins of the test suite, what is collected, and which tests share a process: pytest takes
them from the root folder."""

from __future__ import annotations

import gc
import re
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.support")

pytest_plugins = [
    "tests.device.machine",
    "tests.support.command",
    "tests.support.golden_files",
    "tests.support.postgres",
]
KINDS = {"slow", "long", "serial"}
_MARKS_OF_ALL = re.compile(r"^pytestmark = (?:\[[^\]]*|.*)", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out files of tests that have none of the kind that `-m` asks for.

    Importing all files takes longer than the few tests that hold a clock to a promise, and a
    tenth of them have slow tests alone. Tests are marked in their own files, so that a file's
    text says whether it has any.
    """
    expression = str(config.option.markexpr)
    if " or " in expression or collection_path.suffix != ".py":
        return None
    parts = set(expression.split(" and "))
    asked, excluded = KINDS & parts, {kind for kind in KINDS if f"not {kind}" in parts}
    if not asked | excluded:
        return None
    text = collection_path.read_text("utf-8")
    of_all = set(re.findall(r"mark\.(\w+)", "".join(_MARKS_OF_ALL.findall(text))))
    return None if all(f"mark.{kind}" in text for kind in asked) and not of_all & excluded else True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Searches for no garbage meanwhile, nor ever again in what was imported and collected: it
    stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Makes one group of the tests of a file that has fixtures for all of them.

    Processes that ran such tests in turns would each make the fixtures, some in half a minute.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None and _has_common_fixtures(item.path):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@cache
def _has_common_fixtures(path: Path) -> bool:
    return 'scope="module"' in path.read_text("utf-8")

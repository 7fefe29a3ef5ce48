"""Plugins of the test suite: pytest takes them from the root folder only."""

import pytest

pytest.register_assert_rewrite("tests.support")

pytest_plugins = [
    "tests.device.machine",
    "tests.support.command",
    "tests.support.golden_files",
    "tests.support.postgres",
]

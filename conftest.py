"""Plugins of the test suite: pytest takes them from the root folder only."""

pytest_plugins = ["tests.golden_files", "tests.postgres"]

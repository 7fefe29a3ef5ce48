"""`tuner config show`: values, origins, and the same as a document."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.settings import Settings


def test_shows_each_setting_with_its_origin(
    tuner: Callable[..., Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "work" / "tuner.toml").write_text("threads = 2\n")
    monkeypatch.setenv("TUNER_SEED", "7")
    called = tuner("config", "show", "--origin", "--db", "sqlite:///here.db")
    lines = {line.split()[0]: line for line in called.out.splitlines()}
    assert called.code == 0
    assert lines["threads"].split()[1:] == ["2", str(home / "work" / "tuner.toml")]
    assert lines["seed"].split()[1:] == ["7", "environment", "TUNER_SEED"]
    assert lines["db"].split()[1:] == ["sqlite:///here.db", "flag", "--db"]
    assert lines["trials"].split()[1:] == ["256", "built", "in"]


def test_as_a_document(tuner: Callable[..., Any]) -> None:
    document = tuner("config", "show", "--json").document
    assert [entry["name"] for entry in document["settings"]] == list(Settings.model_fields)
    assert {entry["name"]: entry["value"] for entry in document["settings"]}["trials"] == 256


def test_without_origin_there_is_no_third_column(tuner: Callable[..., Any]) -> None:
    assert "built in" not in tuner("config", "show").out

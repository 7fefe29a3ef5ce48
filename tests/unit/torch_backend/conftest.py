"""Gradients are on, whatever the tests of rivals, which run in processes of their own
otherwise, have left. What a test has kept is gone with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path))


@pytest.fixture(autouse=True)
def gradients() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    with torch.enable_grad():
        yield

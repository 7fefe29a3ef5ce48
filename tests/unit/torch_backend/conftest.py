"""A test begins as a new process does: gradients are on and Dynamo has seen no shapes,
whatever tests before it have left. What a test has kept is gone with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path))


@pytest.fixture(autouse=True)
def as_in_a_new_process() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    with torch.enable_grad():
        yield

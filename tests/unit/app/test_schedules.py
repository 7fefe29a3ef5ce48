"""What a service does now and then: a look that fails, however, is not the last one."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest

from tuner.app.jobs import retention
from tuner.app.jobs.retention import Keep, prune_now_and_then
from tuner.app.service import reraces
from tuner.app.service.reraces import race_now_and_then
from tuner.db.engine import Database
from tuner.export.artifacts import ArtifactStore
from tuner.settings import Settings


class Broken:
    """A database of which every use is a fault, the last one after two more."""

    def __init__(self, stop: threading.Event) -> None:
        self.stop, self.uses = stop, 0

    def read(self, *_: Any) -> AbstractContextManager[Any]:
        self.uses += 1
        if self.uses == 3:
            self.stop.set()
        raise ValueError("label empty or too long")  # as of a host that no name can have

    write = read


@pytest.mark.parametrize("what", ["races", "retention"])
def test_it_is_tried_again(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, said = threading.Event(), list[str]()
    database = cast("Database", Broken(stop))
    if what == "races":
        monkeypatch.setattr(reraces, "EVERY_S", 0.0)
        race_now_and_then(database, "t", Settings(rerace_days=1), stop, said.append)
    else:
        monkeypatch.setattr(retention, "EVERY_S", 0.0)
        prune_now_and_then(database, Keep(days=1), ArtifactStore(tmp_path), stop, said.append)
    assert said == ["ValueError: label empty or too long"] * 3

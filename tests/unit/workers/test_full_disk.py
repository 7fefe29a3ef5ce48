"""A build on a full disk: nothing that a search learns from a candidate."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.problems import PROBLEM
from tuner.measure.outcome import Failed, FailureKind
from tuner.runtime.toolchain import LinkError
from tuner.spaces.core.space import Config
from tuner.workers.backends.backend import CompiledCandidate
from tuner.workers.fleet.build_server import build
from tuner.workers.fleet.messages import BuildRequest, Library, Problem

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/out.o")
REQUEST = BuildRequest(number=1, config={})


@dataclass(frozen=True)
class Refusing:
    """A compiler that meets an error; without one, it has a candidate."""

    error: Exception | None = None

    @property
    def problem(self) -> Problem:
        return PROBLEM

    def compile(self, config: Config | None) -> CompiledCandidate:
        if self.error is not None:
            raise self.error
        return CompiledCandidate(library=b"library", code=b"", symbol="f", schedule=dict)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FULL, FailureKind.INFRASTRUCTURE),
        (LinkError("ld: final link failed: No space left on device"), FailureKind.INFRASTRUCTURE),
        (LinkError("undefined reference to `f'"), FailureKind.BUILD_ERROR),
    ],
)
def test_whose_fault_a_failed_build_is(tmp_path: Path, error: Exception, kind: FailureKind) -> None:
    failed = build(Refusing(error), REQUEST, tmp_path)
    assert isinstance(failed, Failed) and failed.kind is kind
    assert str(error) in failed.message
    assert ("set TMPDIR" in failed.message) == (kind is FailureKind.INFRASTRUCTURE)


def test_a_tool_that_dies_on_a_full_disk_says_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.workers.fleet.build_server.LEAST_FREE_BYTES", 1 << 62)
    failed = build(Refusing(LinkError("ld ended by signal 7")), REQUEST, tmp_path)
    assert isinstance(failed, Failed) and failed.kind is FailureKind.INFRASTRUCTURE


def test_a_library_that_cannot_be_stored_is_no_crash(tmp_path: Path) -> None:
    assert isinstance(build(Refusing(), REQUEST, tmp_path), Library)
    failed = build(Refusing(), REQUEST, tmp_path / "gone")
    assert isinstance(failed, Failed) and failed.kind is FailureKind.INFRASTRUCTURE

"""The process that makes a region's library, and what becomes of the region when it fails."""

from __future__ import annotations

import gc
import io
import subprocess
import sys
import threading
import time
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tuner  # noqa: E402
import tuner.torch.tuning as tuning  # noqa: E402
from tests.support.gpu_machine import REASON  # noqa: E402
from tests.support.torch_libraries import double_graph  # noqa: E402
from tuner.app.models.region_progress import RegionProgress  # noqa: E402
from tuner.models.library.region_cache import RaceResult  # noqa: E402
from tuner.torch.call import RegionCall  # noqa: E402
from tuner.torch.layouts import Layout, Layouts  # noqa: E402
from tuner.torch.making import Making, TuningFailed, made  # noqa: E402
from tuner.torch.notices import Notices, TunerWarning  # noqa: E402
from tuner.torch.options import options_from  # noqa: E402
from tuner.torch.progress import ProgressLine  # noqa: E402
from tuner.torch.tuning import Background, RegionSupply  # noqa: E402
from tuner.workers.jobs.progress import ModelRound, Phase  # noqa: E402

READ = """
import json, os, signal, sys, time
request = json.loads(sys.stdin.buffer.readline())
graph = sys.stdin.buffer.read(request["bytes"])
def say(text): print(text, flush=True)
"""
# What a process does, and the reason of the failure; none where it makes a library.
PROCESSES = {
    "answers": ('say(json.dumps({"library": request["cache"] + "/x.so"}))', None),
    "reports": (
        'say(json.dumps({"progress": "1 of 2"})); '
        'say(json.dumps({"library": request["cache"] + "/x.so"}))',
        None,
    ),
    "refuses": ('say(json.dumps({"error": "no space left"}))', "no space left"),
    "dies": ("os.kill(os.getpid(), signal.SIGKILL)", "ended with status -9"),
    "raises": ('raise SystemExit("out of memory")', "ended with status 1: out of memory"),
    "stops in a line": ("""sys.stdout.write('{"libr'); sys.stdout.flush()""", "status 0"),
    "says nothing": ("", "ended with status 0"),
    "never ends": ("time.sleep(60)", r"took more than 1\.2 s, 1 s of them are its budget"),
}


def making(tmp_path: Path) -> Making:
    settings = options_from(None, {"seconds": 1}).settings
    return Making(
        graph=double_graph().content,
        key="k",
        folder=tmp_path,
        background=False,
        settings=settings,
    )


@pytest.mark.parametrize("name", PROCESSES)
def test_every_end_of_the_process_has_a_reason(tmp_path: Path, name: str) -> None:
    code, reason = PROCESSES[name]
    notes: list[str] = []
    command = (sys.executable, "-c", READ + code)
    grace_s = 0.2 if name == "never ends" else 60
    if reason is None:
        path = made(making(tmp_path), notes.append, command=command, grace_s=grace_s)
        assert path == tmp_path / "x.so"
        assert notes == (["1 of 2"] if name == "reports" else [])
        return
    begin_s = time.monotonic()
    with pytest.raises(TuningFailed, match=reason):
        made(making(tmp_path), command=command, grace_s=grace_s)
    assert time.monotonic() - begin_s < 50


def supply(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tune: str) -> RegionSupply:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path))
    options = options_from(f"tune-{tune}", None)
    return RegionSupply(double_graph(), Layouts(inputs=(), outputs=()), options, Background())


@pytest.mark.parametrize("tune", ["now", "background"])
@pytest.mark.parametrize(
    "error", [TuningFailed("killed"), OSError("disk full"), KeyError("a fault of ours")]
)
def test_what_fails_is_warned_of_and_computed_by_pytorch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tune: str, error: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> Path:
        raise error

    monkeypatch.setattr(tuning, "made", fail)
    call = RegionCall(
        "region_1", lambda x: (x * 2,), supply(monkeypatch, tmp_path, tune), Notices()
    )
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        deadline_s = time.monotonic() + 30
        while not given and time.monotonic() < deadline_s:
            assert call(torch.ones(2))[0].tolist() == [2.0, 2.0]
        call(torch.ones(2))
    (warning,) = given
    assert warning.category is TunerWarning
    assert f"could not be tuned: {error if isinstance(error, TuningFailed) else ''}" in str(
        warning.message
    )


def test_work_behind_a_failure_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = []

    def fail(making: Making) -> Path:
        calls.append(making)
        raise ValueError("no number")

    monkeypatch.setattr(tuning, "made", fail)
    given = supply(monkeypatch, tmp_path, "background")
    regions = [RegionCall(f"region_{n}", lambda x: (x,), given, Notices()) for n in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for region in regions:
            region(torch.ones(2))
    deadline_s = time.monotonic() + 30
    while len(calls) < 3 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert len(calls) == 3


def test_what_waits_is_dropped_with_its_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun, end, calls = threading.Event(), threading.Event(), list[Making]()

    def block(making: Making) -> None:
        calls.append(making)
        begun.set()
        assert end.wait(30)
        raise TuningFailed("ended")

    monkeypatch.setattr(tuning, "made", block)
    background, options = Background(), options_from("tune-background", None)

    def region(number: int) -> RegionCall:
        supply = RegionSupply(double_graph(), Layouts(inputs=(), outputs=()), options, background)
        call = RegionCall(f"region_{number}", lambda x: (x,), supply, Notices())
        call(torch.ones(2))
        return call

    first = region(0)
    assert begun.wait(30)
    dropped, last = weakref.ref(region(1)), region(2)
    gc.collect()
    assert dropped() is None
    begun.clear()
    end.set()
    assert begun.wait(30) and first is not last
    assert len(calls) == 2


@pytest.mark.slow
def test_the_end_of_the_process_says_what_it_has_not_waited_for(tmp_path: Path) -> None:
    code = """
import time, torch, tuner.torch, tuner.torch.tuning as tuning
tuning.made = lambda making: time.sleep(60)
call = torch.compile(lambda x: x.exp() * 2, backend="tuner")
call(torch.ones(3))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={
            "PYTHONPATH": str(Path(tuner.__file__).parents[1]),
            "PATH": "/usr/bin:/bin:/usr/local/bin",
            "TUNER_DATA_DIR": str(tmp_path),
            "HOME": str(tmp_path),
        },
    )
    assert "TunerWarning: 1 regions were still to be tuned when the process ended" in done.stderr


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_line_on_a_terminal_alone() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        line = ProgressLine(stream)
        with pytest.raises(OSError, match="ends"), line.shown():
            line.show("1 of 2")
            line.show("2 of 2")
            raise OSError("ends")
    clear = "\r\x1b[2K"
    assert terminal.getvalue() == f"{clear}1 of 2{clear}2 of 2{clear}"
    assert file.getvalue() == ""


def test_progress_says_how_far_a_region_is() -> None:
    now_s, said = [0.0], list[str]()
    progress = RegionProgress(said.append, lambda: now_s[0])
    progress.observe(Phase(name="searching"))  # too soon to be said
    now_s[0] = 3.0
    progress.observe(ModelRound(trials=12, budget=64, searched=1, kernels=2))
    assert said == ["preparing, 0 s", "searching, 3 s, 12 of 64 trials, 1 of 2 kernels"]


def test_a_race_is_kept_with_its_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = supply(monkeypatch, tmp_path, "off")
    assert given.cache.race(given.key) is None
    given.cache.keep(given.key, b"library")
    given.note(RaceResult(library_s=1e-3, pytorch_s=2e-3))
    assert given.cache.race(given.key) == RaceResult(library_s=1e-3, pytorch_s=2e-3)
    given.cache.keep(given.key, b"another")
    assert given.cache.race(given.key) is None
    (given.cache.folder / given.key / "race.json").write_text("[1")
    assert given.cache.race(given.key) is None


@pytest.mark.skipif(REASON is None, reason="there is a GPU")
def test_without_a_gpu_its_tensors_are_pytorchs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path))
    layout = Layout(shape=(4,), strides=(1,), dtype=torch.float32, on_gpu=True)
    layouts = Layouts(inputs=(layout,), outputs=(layout,))
    options = options_from("tune-now", None)
    given = RegionSupply(double_graph(), layouts, options, Background())
    call = RegionCall("region_1", lambda x: (x * 2,), given, Notices())
    with pytest.warns(TunerWarning, match="region_1: it stays with PyTorch: "):
        assert call(torch.ones(4))[0].tolist() == [2.0] * 4
    assert call(torch.ones(4))[0].tolist() == [2.0] * 4

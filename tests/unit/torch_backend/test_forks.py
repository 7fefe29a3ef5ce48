"""A process that forks while regions are tuned: the child goes on by itself, and so does who tunes
for the parent."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.model_programs import run_program  # noqa: E402
from tests.support.torch_libraries import double_graph  # noqa: E402
from tuner.torch.call import RegionCall  # noqa: E402
from tuner.torch.forks import ProcessLock  # noqa: E402
from tuner.torch.making import Making, made  # noqa: E402
from tuner.torch.notices import Notices  # noqa: E402
from tuner.torch.options import options_from  # noqa: E402
from tuner.torch.tuning import Background  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def forked(function: Callable[[], object]) -> int:
    """The process that calls a function and ends, with 0 unless that raises or takes long."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        function()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_finds_locks_free_that_another_thread_holds() -> None:
    lock, held, end = ProcessLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            end.wait(30)

    def take() -> None:
        with lock:
            pass

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    assert status_of(forked(take)) == 0
    assert lock._lock.locked()
    end.set()
    thread.join()


def test_a_lock_may_be_left_that_was_held_at_the_fork() -> None:
    lock = ProcessLock()

    def leave() -> None:
        lock.__exit__()
        with lock:
            pass

    with lock:
        assert status_of(forked(leave)) == 0


def test_a_child_works_in_the_background_by_itself() -> None:
    background, begun, end = Background(), threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        end.wait(30)

    def work() -> None:
        done = threading.Event()
        background.add(done.set)
        assert done.wait(20)

    background.add(block)
    background.add(lambda: None)
    begun.wait(30)
    try:
        assert status_of(forked(work)) == 0
        assert background._unfinished == 2
    finally:
        end.set()


class Counted:
    """A supply that makes nothing."""

    tolerance = 1e-4

    def __init__(self) -> None:
        self.begun = 0

    def begin(self, call: RegionCall) -> None:
        self.begun += 1

    def discard(self) -> None: ...
    def note(self, race: Any) -> None: ...
    def finish(self) -> None: ...
    def load(self, path: Path, failed: Callable[[str], Any]) -> Any: ...


def test_a_child_asks_anew_for_what_its_parent_waits_for() -> None:
    supply = Counted()
    call = RegionCall("region_1", lambda x: (x * 2,), supply, Notices())

    def again() -> None:
        for _ in range(2):
            assert call(torch.ones(2))[0].tolist() == [2.0, 2.0]
        assert supply.begun == 2

    call(torch.ones(2))
    assert status_of(forked(again)) == 0
    call(torch.ones(2))
    assert supply.begun == 1


# A process that answers, and ends when nobody holds its standard input any more.
MAKER = """
import json, sys
request = json.loads(sys.stdin.buffer.readline())
sys.stdin.buffer.read(request["bytes"])
print(json.dumps({"progress": "begun"}), flush=True)
print(json.dumps({"library": request["cache"] + "/x.so"}), flush=True)
sys.stdin.buffer.read()
"""


def test_a_child_does_not_hold_the_pipes_of_its_parents_maker(tmp_path: Path) -> None:
    given, children = os.pipe(), list[int]()

    def outlive() -> None:
        os.close(given[1])
        os.read(given[0], 1)  # until the parent is done

    making = Making(
        graph=double_graph().content,
        key="k",
        folder=tmp_path,
        background=True,
        settings=options_from(None, {"seconds": 20}).settings,
    )
    path = made(
        making,
        lambda text: children.append(forked(outlive)),
        command=(sys.executable, "-S", "-c", MAKER),
        grace_s=0,
    )
    assert path == tmp_path / "x.so"
    os.close(given[1])
    assert [status_of(child) for child in children] == [0]


PROGRAM = """
import os, signal, threading, time
import torch, tuner.torch, tuner.torch.tuning as tuning
torch.set_num_threads(1)
tuning.made = lambda making: time.sleep(60)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
compiled = torch.compile(model, backend="tuner")

def check(*batches):
    with torch.no_grad():
        for batch in batches:
            x = torch.randn(batch, 8)
            torch.testing.assert_close(compiled(x), model(x))

check(4, 4)
children = []
for batches in ((4, 4), (5, 5, 6, 6), (1,)):
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)
        check(*batches)
        os._exit(0)
    children.append(pid)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children], flush=True)
check(4, 5, 5)

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, number):
        check(4)
        return number

loader = torch.utils.data.DataLoader(Data(), 2, num_workers=2)
print([batch.tolist() for batch in loader], flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_children_call_compiled_models(tmp_path: Path) -> None:
    """With shapes that are there, and with new ones."""
    done = run_program(PROGRAM, home=tmp_path, timeout_s=200)
    assert done.stdout == "[0, 0, 0]\n[[0, 1], [2, 3]]\n", done.stderr

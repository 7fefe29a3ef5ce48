"""The fence around readers of what strangers wrote: files, sockets and processes are
out of reach, threads are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, os, socket, sys, threading
from pathlib import Path
from tuner.measure.sandbox.reading_fence import fence

folder = Path(sys.argv[1])
(folder / "own").mkdir()
fence(writable=[str(folder / "own")])

def tried(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return "done"

found = {
    "write beside": tried(lambda: (folder / "beside").write_text("x")),
    "write own": tried(lambda: (folder / "own" / "file").write_text("x")),
    "read beside": tried(lambda: (folder / "secret").read_text()),
    "socket": tried(socket.socket),
    "fork": tried(os.fork),
    "kill": tried(lambda: os.kill(os.getppid(), 0)),
}
thread = threading.Thread(target=lambda: found.update(thread="done"))
thread.start(), thread.join()
print(json.dumps(found))
"""


def test_what_a_reader_may_and_may_not(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True
    )
    results = json.loads(done.stdout)
    assert {name for name, result in results.items() if result == "done"} == {
        "write own",
        "thread",
    }, results
    assert not (tmp_path / "beside").exists()

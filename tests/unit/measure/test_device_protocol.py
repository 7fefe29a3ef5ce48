"""Frames between host and agent, with a hostile peer at either end.

The agent's hostile server is this file. The host's hostile device is a program that says
what it is told to.
"""

from __future__ import annotations

import hashlib
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.agent_fuzzer import conversation, frame, mutations
from tests.support.agents import native_agent
from tests.support.hostile_kernels import addition
from tuner.measure.assignment import Assignment, Device, Lane, Request
from tuner.measure.device import connection as connecting
from tuner.measure.device.connection import CandidateEnded, Connection, DeviceError
from tuner.measure.device.limits import limits_of
from tuner.measure.device.protocol import VERSION, Answer, Ask, Binding, FrameError
from tuner.measure.device.runner import DeviceRunner
from tuner.measure.outcome import Conditions, Failed, FailureKind, Timed, Trial
from tuner.settings import Settings
from tuner.target.detect import parse_target
from tuner.target.limits import LimitsError
from tuner.workers.fleet.messages import Problem
from tuner.workers.fleet.runner import RACE_TIMEOUT_FACTOR
from tuner.workers.jobs.plausibility import Judge
from tuner.workload.spec import parse_spec

HELLO = frame(Ask.HELLO, struct.pack("<I", VERSION))
DEVICE = struct.pack("<4IQ4Q64s", VERSION, 62, 2, 7, 1 << 33, 0, 0, 0, 0, b"board")


def agent(*frames: bytes) -> list[tuple[int, bytes]]:
    """What the agent answers to these bytes until it ends."""
    done = subprocess.run(
        native_agent().command, input=b"".join(frames), capture_output=True, timeout=20, check=False
    )
    assert done.returncode in (0, 1), done
    answers, data = [], done.stdout
    while data:
        kind, length = struct.unpack_from("<II", data)
        answers.append((kind, data[8 : 8 + length]))
        data = data[8 + length :]
    return answers


REFUSALS = [
    ("a type that is none", frame(99, b""), 1),
    ("an answer", frame(Answer.DONE, b""), 1),
    ("a length that is too long", struct.pack("<II", Ask.RUN, 0xFFFFFFFF), 1),
    ("a length that is too short", frame(Ask.OPEN, bytes(47)), 1),
    ("a blob without a hash", frame(Ask.BLOB, bytes(31)), 1),
    ("a blob of four gigabytes", struct.pack("<II", Ask.BLOB, 0xFFFFFFFF), 1),
    ("content without its hash", frame(Ask.BLOB, bytes(32) + b"other"), 3),
    ("a second greeting", HELLO, 4),
    ("a library that was not sent", frame(Ask.OPEN, bytes(32) + struct.pack("<IIQ", 9, 1, 9)), 4),
    ("a call without a candidate", frame(Ask.RUN, struct.pack("<5I", 0, 0, 1, 1, 0)), 4),
    ("a measurement of an hour", frame(Ask.MEASURE, struct.pack("<IIQ", 3600_000, 0, 1)), 1),
]


@pytest.mark.parametrize(
    ("frames", "reason"), [row[1:] for row in REFUSALS], ids=[r[0] for r in REFUSALS]
)
def test_the_agent_refuses_what_is_malformed_or_out_of_order_and_ends(
    frames: bytes, reason: int
) -> None:
    answers = agent(HELLO, frames, frame(Ask.PACE, b""))
    assert [kind for kind, _ in answers] == [Answer.DEVICE, Answer.REFUSED]
    assert answers[1][1] == struct.pack("<I", reason)


def test_the_agent_greets_first_and_in_its_version_alone() -> None:
    assert agent(frame(Ask.PACE, b"")) == [(Answer.REFUSED, struct.pack("<I", 4))]
    assert agent(frame(Ask.BLOB, bytes(32))) == [(Answer.REFUSED, struct.pack("<I", 4))]
    assert agent(frame(Ask.HELLO, struct.pack("<I", 1))) == [(Answer.REFUSED, struct.pack("<I", 2))]


def test_more_blobs_than_there_is_room_for_are_refused() -> None:
    blobs = [struct.pack("<I", number) for number in range(300)]
    frames = [frame(Ask.BLOB, hashlib.sha256(blob).digest() + blob) for blob in blobs]
    answers = agent(HELLO, *frames)
    assert answers[-1] == (Answer.REFUSED, struct.pack("<I", 5)) and len(answers) == 258


@pytest.mark.parametrize("content", [b"no library", b"\x7fELF" + bytes(100)])
def test_what_is_no_library_is_an_end_of_its_process_alone(content: bytes) -> None:
    with Connection(native_agent()) as connection:
        digest = connection.keep(content, library=True)
        with pytest.raises(CandidateEnded) as ended:
            connection.open(digest, deadline_s=5, threads=1, memory_bytes=1 << 30)
        assert ended.value.ended.how.name == "NOT_LOADED" and ended.value.ended.text
        assert connection.pace_s() > 0


def test_a_race_may_take_as_long_as_settings_allow() -> None:
    bounds = Settings.model_fields["run_timeout_s"].metadata
    longest_s = next(bound.le for bound in bounds if hasattr(bound, "le"))
    with Connection(native_agent()) as connection:
        digest = connection.keep(b"no library", library=True)
        with pytest.raises(CandidateEnded):
            connection.open(
                digest,
                deadline_s=RACE_TIMEOUT_FACTOR * longest_s,
                threads=1,
                memory_bytes=1 << 30,
            )


@pytest.mark.slow
def test_mutated_conversations_leave_the_agent_sound() -> None:
    """A hundred here; `python -m tests.support.agent_fuzzer` goes on under sanitizers."""
    assert mutations(native_agent().command, conversation(), count=100, seed=1) == 100


DEVICE_THAT_SAYS = """
import os, struct, sys
def take(count):
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part: sys.exit()
        data += part
    return data
answers = dict(pair.split("=") for pair in sys.argv[1:])
while True:
    kind, length = struct.unpack("<II", take(8))
    take(length)
    os.write(1, bytes.fromhex(answers.get(str(kind), answers["other"])))
"""


def device_that_says(tmp_path: Path, other: bytes = b"", **answers: bytes) -> Device:
    """A device with these answers to requests by name, and `other` to the rest."""
    program = tmp_path / "device.py"
    program.write_text(DEVICE_THAT_SAYS)
    given = {
        Ask[name]: data for name, data in {"HELLO": frame(Answer.DEVICE, DEVICE), **answers}.items()
    }
    words = [f"{int(ask)}={data.hex()}" for ask, data in given.items()]
    other = other or frame(Answer.DONE, b"")
    return Device(command=(sys.executable, "-S", str(program), f"other={other.hex()}", *words))


def hello(**fields: object) -> bytes:
    usual = {"version": VERSION, "machine": 62, "cores": 2, "fences": 7, "host": b"board"}
    values = {**usual, **fields}
    return frame(
        Answer.DEVICE,
        struct.pack(
            "<4IQ4Q64s",
            *(values[name] for name in ("version", "machine", "cores", "fences")),
            1 << 33, 0, 0, 0, 0, values["host"],
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("greeting", "message"),
    [
        (hello(host=b"../../etc/passwd"), "a device called '../../etc/passwd'"),
        (hello(host=b"\x1b[2J"), "a device called"),
        (hello(host=b""), "a device called ''"),
        (hello(cores=0), "0 cores"),
        (hello(machine=3), "machine 3"),
        (hello(fences=64), "fences 64"),
        (hello(version=9), "version 9"),
        (frame(Answer.DEVICE, DEVICE[:-1]), "it answered with 119 bytes of type 64"),
        (struct.pack("<II", Answer.DEVICE, 0xFFFFFFFF), "4294967295 bytes of type 64"),
        (frame(Answer.BYTES, bytes(120)), "120 bytes of type 69"),
        (b"Welcome to Debian GNU/Linux\n", "it wrote 'Welcome '.*, such as a shell that greets"),
        (frame(Answer.REFUSED, struct.pack("<I", 2)), "another version of the protocol"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_device_that_greets_with_what_cannot_be_is_let_go(
    tmp_path: Path, greeting: bytes, message: str
) -> None:
    with pytest.raises(DeviceError, match=message.replace("[", r"\[")):
        Connection(device_that_says(tmp_path, HELLO=greeting))


def test_another_machine_does_not_go_on_for_the_first(tmp_path: Path) -> None:
    """As where a name comes to stand for another board."""
    words = {host: device_that_says(tmp_path, HELLO=hello(host=host)) for host in (b"a", b"b")}
    given = [" ".join(map(repr, device.command)) for device in words.values()]
    script = tmp_path / "agent.sh"
    device = Device(command=("sh", str(script)))
    script.write_text(f"exec {given[0]}")
    with DeviceRunner(device) as runner:
        runner.start().close()
        runner.start().close()
        script.write_text(f"exec {given[1]}")
        with pytest.raises(DeviceError, match="another machine answers"):
            runner.start()
        script.write_text(f"exec {given[0]}")
        assert runner.start().facts.host == "a"


def test_a_silent_device_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "START_S", 0.5)
    with pytest.raises(DeviceError, match="it was silent"):
        Connection(device_that_says(tmp_path, HELLO=struct.pack("<I", 64)))


def test_signs_of_life_are_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "ANSWER_S", 0.5)
    greeting = frame(Answer.DEVICE, DEVICE).hex()
    program = tmp_path / "device.py"
    program.write_text(
        f"import os\nos.read(0, 12)\nos.write(1, bytes.fromhex('{greeting}'))\n"
        f"while True: os.write(1, bytes.fromhex('{frame(Answer.BEAT, b'').hex()}'))\n"
    )
    with Connection(Device(command=(sys.executable, "-S", str(program)))) as connection:
        with pytest.raises(DeviceError, match="it gave no answer within"):
            connection.pace_s()
        assert not connection.is_open


def test_what_a_device_writes_to_its_errors_fills_nothing(tmp_path: Path) -> None:
    """Only the end of it is held."""
    program = tmp_path / "device.py"
    program.write_text(
        "import os\nfor _ in range(1000): os.write(2, bytes(1 << 14))\n"
        "os.write(2, b'\\33[2Jlast words')\n"
    )
    with pytest.raises(DeviceError, match=r"it ended; it wrote: .*last words") as ended:
        Connection(Device(command=(sys.executable, "-S", str(program))))
    assert len(str(ended.value)) < 2000 and "\x1b" not in str(ended.value)


DESCRIPTION = (
    b'{"name": "kernel", "functions": [{"symbol": "kernel", "isa": [], "threads": 1, "arguments": ['
    b'{"name": "A", "dtype": "float32", "shape": [1003], "role": "in"}, '
    b'{"name": "B", "dtype": "float32", "shape": [1003], "role": "in"}, '
    b'{"name": "C", "dtype": "float32", "shape": [1003], "role": "out"}]PREPACK}]}'
)
PLAIN = DESCRIPTION.replace(b"PREPACK", b"")
HUGE = DESCRIPTION.replace(
    b"PREPACK",
    b', "prepack": {"symbol": "p", "constants": [0], "passed": [1, 2], "packed": [{"name": "P", '
    b'"dtype": "float32", "shape": [4294967296]}]}',
)
PATHS = DESCRIPTION.replace(b'"kernel", "functions"', b'"../../lib", "functions"').replace(
    b"PREPACK", b""
)
ROWS = PLAIN.replace(
    b'"isa": []', b'"isa": [], "rows": {"name": "M", "low": 1, "high": 9, "ranged": [0, 9]}'
)
UNCHANGED = frame(Answer.SURROUNDINGS, struct.pack("<IIQ", 0, 0, 0))


@pytest.mark.parametrize(
    ("answers", "kind", "message"),
    [
        (
            {"OPEN": frame(Answer.OPENED, b"{}")},
            FailureKind.RUN_CRASH,
            "does not describe a function",
        ),
        ({"OPEN": frame(Answer.OPENED, b"[" * 5000)}, FailureKind.RUN_CRASH, "does not describe a"),
        ({"OPEN": frame(Answer.OPENED, HUGE)}, FailureKind.RUN_CRASH, "a tensor of more than"),
        ({"OPEN": frame(Answer.OPENED, PATHS)}, FailureKind.RUN_CRASH, "no names of C"),
        *(
            ({"OPEN": frame(Answer.OPENED, text)}, FailureKind.RUN_CRASH, "does not describe a")
            for text in (
                PLAIN.replace(b"float32", b"evil"),
                PLAIN.replace(b"[1003]", b"7"),
                PLAIN.replace(b'"isa": []', b'"isa": [], "rows": 3'),
                HUGE.replace(b'"symbol": "p"', b'"symbol": 7'),
                HUGE.replace(b"4294967296", b'"wide"'),
                HUGE.replace(b"4294967296", b"1").replace(b"[1, 2]", b"[-1, 2]"),
                HUGE.replace(b"4294967296", b"1").replace(b"[0]", b'["A"]'),
                HUGE.replace(b"4294967296", b"-1"),
                ROWS,
            )
        ),
        (
            {"OPEN": frame(Answer.OPENED, PLAIN.replace(b"1003", b"1004"))},
            FailureKind.RUN_CRASH,
            "takes other tensors",
        ),
        (
            {"RUN": frame(Answer.TIMES, struct.pack("<d", 0.0))},
            FailureKind.IMPLAUSIBLE,
            "a call took 0.0 s",
        ),
        (
            {"RUN": frame(Answer.TIMES, struct.pack("<d", -1.0))},
            FailureKind.IMPLAUSIBLE,
            "a call took -1.0 s",
        ),
        (
            {"RUN": frame(Answer.TIMES, struct.pack("<d", float("nan")))},
            FailureKind.INFRASTRUCTURE,
            "not finite",
        ),
        ({"RUN": frame(Answer.TIMES, bytes(16))}, FailureKind.INFRASTRUCTURE, "16 bytes of type"),
        (
            {"OUTPUT": frame(Answer.BYTES, bytes(4 * 1002))},
            FailureKind.INFRASTRUCTURE,
            "4008 bytes of type",
        ),
        ({"OUTPUT": frame(Answer.BYTES, bytes(4 * 1003))}, FailureKind.WRONG_ANSWER, "is wrong in"),
        (
            {"CHECK": frame(Answer.SURROUNDINGS, struct.pack("<IIQ", 1, 9, 1 << 60))},
            FailureKind.WRONG_ANSWER,
            "changed its input tensor 9",
        ),
        (
            {"CHECK": frame(Answer.SURROUNDINGS, struct.pack("<IIQ", 77, 0, 0))},
            FailureKind.INFRASTRUCTURE,
            "77 is no BufferChange",
        ),
        (
            {"BIND": frame(Answer.ENDED, struct.pack("<IiI", 2, 99, 0))},
            FailureKind.RUN_CRASH,
            "signal 99",
        ),
        (
            {"BIND": frame(Answer.ENDED, struct.pack("<IiI", 4, 0, 4000))},
            FailureKind.WRONG_ANSWER,
            "out of bounds of tensor 4000",
        ),
    ],
)
def test_a_device_that_lies_fails_the_trial(
    tmp_path: Path, answers: dict[str, bytes], kind: FailureKind, message: str
) -> None:
    usual = {
        "OPEN": frame(Answer.OPENED, PLAIN),
        "RUN": frame(Answer.TIMES, struct.pack("<d", 1e-6)),
        "CHECK": UNCHANGED,
        "OUTPUT": frame(Answer.BYTES, bytes(4 * 1003)),
    }
    device = device_that_says(tmp_path, **{**usual, **answers})
    library = tmp_path / "libkernel.so"
    library.write_bytes(b"a library")
    with DeviceRunner(device, patience_s=0.0) as runner:
        runner.prepare(
            Assignment(workload=addition(), lane=Lane(name="d", cores=(0,), device=device))
        )
        outcome = runner.measure(Request(name="x", library=str(library), symbol="kernel"))
    assert isinstance(outcome, Failed) and outcome.kind is kind, outcome
    assert message in outcome.message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((), "does not measure"),
        ((1e9, 1e9), "does not measure"),
        ((1e9, 1e15, 16384.0, 1e9, 1e9, 1e9), "does what no cpu:neoverse-n1 can"),
        ((1e9, 2e9, 16384.0, 1e9, 1e14, 1e9), "does what no cpu:neoverse-n1 can"),
        ((2e9, 1e9, 16384.0, 1e9, 1e9, 1e9), "does what no cpu:neoverse-n1 can"),
        ((1e9, 2e9, *(16384.0, 1e9, 1e9, 1e9) * 2), "working sets of"),
        ((1e9, 2e9, 1e300, 1e9, 1e9, 1e9), "working sets of"),
    ],
)
def test_limits_that_no_such_core_has_are_refused(values: tuple[float, ...], message: str) -> None:
    with pytest.raises(LimitsError, match=message):
        limits_of(values, parse_target("cpu:neoverse-n1"))


def test_limits_are_taken_as_they_were_measured() -> None:
    limits = limits_of((1e9, 2e9, 16384.0, 3e9, 4e9, 5e9), parse_target("cpu:neoverse-n1"))
    assert limits.fma_flops == 1e9 and limits.fma_flops_best == 2e9
    assert limits.bandwidth[0].copy == 5e9


def test_a_time_beyond_the_limits_of_the_device_is_implausible() -> None:
    """A device that says it was a thousand times faster than its core can multiply."""
    target = parse_target("cpu:neoverse-n1")
    limits = limits_of((20e9, 21e9, 16384.0, 3e10, 3e10, 3e10), target)
    problem = Problem(
        workload=parse_spec("matmul:M=64,N=64,K=64"),
        target=replace(target, limits=limits),
        threads=1,
    )
    judge = Judge(problem, remeasured=lambda: limits, on_limits=lambda limits: None)
    conditions = Conditions(lane="device:board", isolation="process")
    lie = Timed(samples_s=(2e-8,), max_rel_error=0.0, conditions=conditions, artifact="0" * 64)
    judged = judge.judged(Trial(number=1, config={}, outcome=lie)).outcome
    assert isinstance(judged, Failed) and judged.kind is FailureKind.IMPLAUSIBLE
    honest = Trial(number=2, config={}, outcome=replace(lie, samples_s=(1e-4,)))
    assert judge.judged(honest) is honest


def test_a_binding_that_an_agent_has_no_room_for_is_refused() -> None:
    binding = Binding(
        function="f", timer="t", threader="s", reason="r", threads=1,
        inputs=((bytes(32),),), output_bytes=(4,), passed=(0,),
    )  # fmt: skip
    assert len(binding.packed()) == 5720
    for change in (
        {"function": "f" * 256},
        {"function": "a/b"},
        {"inputs": ((bytes(32),),) * 9},
        {"inputs": ((bytes(32),) * 17,)},
        {"output_bytes": (1 << 29,)},
        {"passed": (1,)},
        {"packed_bytes": (4,)},
    ):
        with pytest.raises(FrameError):
            replace(binding, **change).packed()

"""Mutated conversations with the agent, under sanitizers when run as a program.

    python -m tests.support.agent_fuzzer --seconds 1800

compiles the agent of this machine with AddressSanitizer and UBSan and sends it streams
that begin as a whole conversation with a library and are then mutated. It stops at the
first one that ends the agent in any other way than by its own decision, and keeps it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from tests.support.hostile_kernels import compile_kernel
from tuner.measure.device import protocol
from tuner.measure.device.protocol import Answer, Ask, Binding, End, Ended

WITHIN_S = 30.0
SANITIZED = 99  # exit status of what a sanitizer ends
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
# Of the numbers that parsers mistake.
EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 28, (1 << 28) + 1)


def frame(kind: int, payload: bytes) -> bytes:
    return struct.pack("<II", kind, len(payload)) + payload


def conversation(library: bytes = b"no library") -> list[bytes]:
    """Every request once, as a host would ask."""
    vector = bytes(4 * 1003)
    hashes = [hashlib.sha256(content).digest() for content in (library, vector)]
    binding = Binding(
        function="kernel", timer="good_time", threader="good_set_num_threads",
        reason="good_last_error", threads=1, inputs=((hashes[1], hashes[1]),),
        output_bytes=(4 * 1003,), passed=(0, 1),
    )  # fmt: skip
    call = protocol.running(0, poison=255, number=1, repeat=3, settle_us=10)
    return [
        frame(Ask.HELLO, protocol.number(protocol.VERSION)),
        frame(Ask.BLOB, hashes[0] + library),
        frame(Ask.BLOB, hashes[1] + vector),
        frame(Ask.PACE, b""),
        frame(
            Ask.OPEN,
            protocol.opening(hashes[0], deadline_s=0.5, threads=1, memory_bytes=1 << 30),
        ),
        frame(Ask.BIND, binding.packed()),
        frame(Ask.RUN, call),
        frame(Ask.CHECK, b""),
        frame(Ask.OUTPUT, protocol.number(0)),
        frame(Ask.PACE, b""),
        frame(Ask.CLOSE, b""),
        frame(Ask.FORGET, hashes[1]),
        frame(Ask.MEASURE, protocol.measuring(0.005, 1 << 16)),
        frame(Ask.CLOSE, b""),
    ]


def mutated(frames: Sequence[bytes], rng: random.Random) -> bytes:
    """The conversation with a few changes: of bytes, numbers, lengths, order and end."""
    parts = [bytearray(part) for part in frames]
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(parts))
        part = parts[place]
        match rng.randrange(7):
            case 0 if part:
                part[rng.randrange(len(part))] ^= 1 << rng.randrange(8)
            case 1 if len(part) >= 4:
                start = rng.randrange(0, len(part) - 3)
                part[start : start + 4] = struct.pack("<I", rng.choice(EDGES))
            case 2:
                del part[rng.randrange(len(part) + 1) :]
            case 3:
                part += rng.randbytes(rng.randint(1, 64))
            case 4:
                parts.insert(rng.randrange(len(parts)), bytearray(part))
            case 5 if len(parts) > 1:
                del parts[place]
            case _:
                other = rng.randrange(len(parts))
                parts[place], parts[other] = parts[other], parts[place]
    return b"".join(parts)


def mutations(
    command: Sequence[str],
    frames: Sequence[bytes],
    *,
    count: int,
    seed: int,
    kept: Path | None = None,
) -> int:
    """Sends so many mutated conversations; the number of those that the agent survived.

    It ends by itself with status 0, whatever it was sent. The first stream after which it
    does not is kept, if a path is given.
    """
    for survived, stream in zip(range(count), _streams(frames, seed), strict=False):
        try:
            done = subprocess.run(
                command, input=stream, capture_output=True, timeout=WITHIN_S, check=False
            )
        except subprocess.TimeoutExpired:
            if kept is not None:
                kept.write_bytes(stream)
            print(f"it was still at work after {WITHIN_S} s")
            return survived
        crashed = _crashed(done.stdout) and all(part in stream for part in frames[1:2])
        if done.returncode != 0 or b"runtime error" in done.stderr or crashed:
            if kept is not None:
                kept.write_bytes(stream)
            print(done.returncode, done.stderr.decode(errors="replace"))
            return survived
    return count


def _crashed(answers: bytes) -> bool:
    """Whether a process of the agent's was ended by a sanitizer or a fault.

    That of a library which was not changed must not be, whatever it was asked for.
    """
    while len(answers) >= 8:
        kind, length = struct.unpack_from("<II", answers)
        if kind == Answer.ENDED:
            ended = Ended.of(answers[8 : 8 + length])
            faults = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL)
            if (ended.how, ended.code) == (End.EXIT, SANITIZED) or (
                ended.how is End.SIGNAL and ended.code in faults
            ):
                return True
        answers = answers[8 + length :]
    return False


def _streams(frames: Sequence[bytes], seed: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    while True:
        yield mutated(frames, rng)


def sanitized_agent(folder: Path) -> Path:
    """The agent of this machine with sanitizers."""
    sources = [str(path) for path in Path(str(files("tuner.runtime") / "agent")).glob("*.c")]
    program = folder / "agent"
    shared = files("tuner.runtime") / "src"
    subprocess.run(
        ["cc", "-std=gnu11", *SANITIZERS, "-DTUNER_AGENT", f"-I{shared}", *sources,
         str(files("tuner.target") / "limits.c"), "-lm", "-o", str(program)],
        check=True,
    )  # fmt: skip
    return program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tuner-fuzz-"))
    program, library = sanitized_agent(folder), compile_kernel("good", folder).read_bytes()
    os.environ["ASAN_OPTIONS"] = f"detect_leaks=0:allocator_may_return_null=1:exitcode={SANITIZED}"
    os.environ["UBSAN_OPTIONS"] = f"exitcode={SANITIZED}"
    frames, deadline, total = conversation(library), time.monotonic() + given.seconds, 0
    while time.monotonic() < deadline:
        survived = mutations(
            [str(program)], frames, count=100, seed=given.seed + total, kept=folder / "crash"
        )
        total += survived
        if survived < 100:
            raise SystemExit(f"stream {total} broke the agent; it is {folder / 'crash'}")
    print(f"{total} mutated conversations, nothing found")


if __name__ == "__main__":
    main()

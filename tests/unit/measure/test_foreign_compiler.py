"""The compiler of strangers' texts reads, runs and writes no more than it must; what it
made is looked through before anything loads it."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest

from tests.support.small_disk import empty, fill_up, small_disk
from tuner.measure.foreign import compiler
from tuner.measure.foreign.allowed import HEADERS, OF_MACHINE
from tuner.measure.foreign.compiler import MOST_SOURCE_BYTES, NoRoom, compile_source
from tuner.measure.foreign.object_file import check_object
from tuner.measure.foreign.verdict import Guilty, VerdictName
from tuner.measure.sandbox.compiler_fence import OUTPUT, FencedJob, run_fenced
from tuner.runtime.link import system_toolchain
from tuner.runtime.toolchain import run

KERNEL = "int f(const float *x, float *y) { y[0] = x[0]; return 0; }"


def verdict(source: str) -> VerdictName:
    try:
        compile_source(source, "f", system_toolchain())
    except Guilty as guilty:
        return guilty.verdict.name
    return VerdictName.VERIFIED


def job(folder: Path, *command: str, **changes: object) -> FencedJob:
    given = {
        "commands": (command,),
        "folder": str(folder),
        "readable": (),
        "executable": _program(command[0]),
        "timeout_s": 10.0,
        "memory_bytes": 1 << 30,
        "file_bytes": 1 << 20,
        **changes,
    }
    return FencedJob(**given)  # type: ignore[arg-type]  # tests name the fields


def _program(path: str) -> tuple[str, ...]:
    return (path, *compiler._loaded(path))


def test_all_headers_of_the_list() -> None:
    machine = system_toolchain().machine
    named = [f"#include <{name}>\n" for name in (*HEADERS, *OF_MACHINE.get(machine, ()))]
    assert verdict("".join(named) + KERNEL) is VerdictName.VERIFIED


@pytest.mark.parametrize(
    "line",
    [
        "#include <unistd.h>",
        "#include <pthread.h>",
        "#include <sys/syscall.h>",
        '#include "/proc/self/environ"',
        '#include "/etc/hostname"',
        '#include "../kernel.c"',
        '#define NAME "/etc/passwd"\n#include NAME',
        "??=include </etc/passwd>",
        '#inc\\\nlude "/etc/passwd"',
        '%:include "/etc/passwd"',
    ],
)
def test_no_other_file_is_included(line: str) -> None:
    source = f"{line}\n{KERNEL}"
    assert verdict(source) in (VerdictName.HEADER_REFUSED, VerdictName.BUILD_ERROR)
    if "??=" not in line and "../" not in line:
        assert verdict(source) is VerdictName.HEADER_REFUSED


@pytest.mark.parametrize(
    "text",
    [
        '__asm__(".incbin \\"/etc/passwd\\"");',
        '__asm__(".include \\"/etc/passwd\\"");',
        '#pragma GCC pch_preprocess "/etc/passwd"\n',
        '#embed "/etc/passwd"\n',
        "__asm__(\".fill 1<<28, 8, 1\");",
        'static char room[1] __attribute__((aligned(1 << 20))); char *g(void) { return room; }',
        "char room[1ull << 33]; char *g(void) { return room; }",
        "_Thread_local int own; int *g(void) { return &own; }",
    ],
)  # fmt: skip
def test_nothing_else_gets_in(text: str) -> None:
    assert verdict(text + KERNEL) in (VerdictName.BUILD_ERROR, VerdictName.SECTION_REFUSED)


def test_growth_is_bounded() -> None:
    """Macros that would become 32 million declarations."""
    macros = "#define A(x) x x x x x x x x\n#define B(x) A(A(A(A(x))))\n"
    assert verdict(f"{macros}{KERNEL}void g(void) {{ B(B(int y;)) }}") is VerdictName.BUILD_ERROR


def test_long_sources_are_refused() -> None:
    source = KERNEL + "/*" + "x" * MOST_SOURCE_BYTES + "*/"
    assert verdict(source) is VerdictName.BUILD_ERROR


def test_a_lone_surrogate_is_no_crash() -> None:
    assert verdict(f"/* \ud800 */ {KERNEL}") is VerdictName.VERIFIED


def test_a_secret_stays_one(tmp_path: Path) -> None:
    secret, folder = tmp_path / "secret", tmp_path / "own"
    secret.write_text("confidential")
    folder.mkdir()
    assert run_fenced(job(folder, "/bin/cat", str(secret))) != 0
    assert "confidential" not in (folder / OUTPUT).read_text()
    assert run_fenced(job(folder, "/bin/cat", str(secret), readable=(str(secret),))) == 0
    assert "confidential" in (folder / OUTPUT).read_text()


def test_no_program_but_those_named(tmp_path: Path) -> None:
    shell = _program("/bin/sh")
    assert run_fenced(job(tmp_path, "/bin/sh", "-c", "/bin/cat /dev/null")) != 0
    both = (*shell, *_program("/bin/cat"))
    assert run_fenced(job(tmp_path, "/bin/sh", "-c", "/bin/cat kernel.c", executable=both)) != 0
    (tmp_path / "kernel.c").write_text(KERNEL)
    assert run_fenced(job(tmp_path, "/bin/sh", "-c", "/bin/cat kernel.c", executable=both)) == 0


def test_nothing_is_written_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    assert run_fenced(job(folder, "/bin/sh", "-c", f"echo x > {tmp_path}/other")) != 0
    assert not (tmp_path / "other").exists()
    assert run_fenced(job(folder, "/bin/sh", "-c", "echo x > own")) == 0


def test_no_sockets_and_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_TEST_TOKEN", "confidential")
    assert run_fenced(job(tmp_path, "/bin/sh", "-c", 'test -z "$TUNER_TEST_TOKEN"')) == 0
    source = tmp_path / "socket.c"
    source.write_text(
        "#include <sys/socket.h>\nint main(void) { return socket(AF_INET, SOCK_STREAM, 0) >= 0; }"
    )
    program = tmp_path / "socket"
    run(["cc", str(source), "-o", str(program)])
    assert os.spawnl(os.P_WAIT, str(program), str(program)) == 1
    assert run_fenced(job(tmp_path, str(program))) == 0


def test_time_is_bounded(tmp_path: Path) -> None:
    assert run_fenced(job(tmp_path, "/bin/sh", "-c", "while :; do :; done", timeout_s=0.5)) < 0


def test_damaged_objects_are_refused_not_believed(tmp_path: Path) -> None:
    source, path = tmp_path / "k.c", tmp_path / "k.o"
    source.write_text(KERNEL)
    run(["cc", "-O2", "-fPIC", "-c", str(source), "-o", str(path)])
    content = path.read_bytes()
    check_object(content, "f")
    rng = random.Random(7)
    for _ in range(300):
        damaged = bytearray(content[: rng.randrange(len(content) + 1)])
        for _ in range(rng.randrange(4)):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            check_object(bytes(damaged), "f")
        except Guilty as guilty:
            assert guilty.verdict.name in (
                VerdictName.SECTION_REFUSED,
                VerdictName.SYMBOL_REFUSED,
                VerdictName.BUILD_ERROR,
            )


def refusal(source: str) -> str:
    with pytest.raises(Guilty) as guilty:
        compile_source(source, "f", system_toolchain())
    return guilty.value.verdict.message


@pytest.mark.parametrize(
    "line",
    [
        '#include "FILE"',
        '__asm__(".incbin \\"FILE\\"");',
        '#pragma GCC dependency "FILE"',
        '#if __has_include("FILE")\n#endif',
        '#define LOOK __has_include\n#if LOOK("FILE")\n#endif',
        '#define LOOK(x) __has_##x\n#if LOOK(include)("FILE")\n#endif',
        '#pragma push_macro("__has_include")\n#undef __has_include\n'
        '#pragma pop_macro("__has_include")\n#if __has_include("FILE")\n#endif',
    ],
)
def test_nobody_learns_what_files_there_are(tmp_path: Path, line: str) -> None:
    (tmp_path / "secret").write_text("x")
    there, missing = (
        refusal(f"{line.replace('FILE', str(tmp_path / name))}\n{KERNEL}\n#error end").replace(
            name, "NAME"
        )
        for name in ("secret", "absent")
    )
    assert there == missing


def test_what_drives_a_terminal_is_not_passed_on() -> None:
    message = refusal('#error "\x1b[2Jcleared\x00"\n')
    assert "cleared" in message
    assert all(character.isprintable() or character == "\n" for character in message)


def test_a_full_disk_is_no_fault_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_source(KERNEL, "f", system_toolchain())  # whose parts are then known
    with small_disk(tmp_path / "disk", megabytes=2) as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        for left in (0, 8 << 10):  # for the text, for what the compiler makes of it
            fill_up(disk, leave_bytes=left)
            with pytest.raises(NoRoom, match="No space left on device; free some, or set TMPDIR"):
                compile_source(KERNEL, "f", system_toolchain())
            empty(disk)
        compile_source(KERNEL, "f", system_toolchain())

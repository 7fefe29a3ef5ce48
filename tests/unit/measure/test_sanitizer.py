"""compute-sanitizer around a kernel: its words are read, what it finds is one error,
and so is that it is not there."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.gpu_machine import REASON, needs_gpu
from tests.support.gpu_requests import WORKLOAD, request
from tuner.errors import UsageError
from tuner.measure.gpu.check import Subject
from tuner.measure.gpu.sanitizer import (
    FINDINGS_STATUS,
    TOOLS,
    SanitizerError,
    find_sanitizer,
    parse_tools,
    read_report,
    sanitize,
)
from tuner.workload.spec import parse_spec, to_document

SUBJECT = Subject(
    workload=to_document(parse_spec(WORKLOAD)), seed=0, library="/nowhere/lib.so", symbol="k"
)
# As the tool prints them: the examples of its documentation, without backtraces.
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
CLEAN_RACES = (
    "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 "
    "errors, 0 warnings)\n"
)
MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at unaligned_kernel()+0x50
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x710fdca00001 is misaligned
=========     and is inside the nearest allocation at 0x710fdca00000 of size 4 bytes
=========
========= Invalid __global__ write of size 4 bytes
=========     at out_of_bounds_kernel()+0x90
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x87654320 is out of bounds
=========     and is 124,310,666,263,776 bytes before the nearest allocation at 0x710fdc800000 of size 1,024 bytes
=========
========= Target application returned an error
========= ERROR SUMMARY: 2 errors
"""  # noqa: E501
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sumKernel(int *, int *)+0x90 in block_error.cu:41
=========     and Read access at sumKernel(int *, int *)+0x100 in block_error.cu:51 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""  # noqa: E501
WARNED = """========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at RAW()+0xf0 in raceGroupBasic.cu:40
=========     and Read access at RAW()+0x280 in raceGroupBasic:46 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""
SYNCCHECK = """========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in warp
=========     at ThreadDivergence(int *, int)+0xf0 in divergence.cu:79
=========     by thread (37,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
INITCHECK = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at vectorAdd(int *)+0x70 in memset_error.cu:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= ERROR SUMMARY: 62 errors were not printed. Use --print-limit option to adjust the number of printed errors
========= ERROR SUMMARY: 162 errors
"""  # noqa: E501
# On a machine without a driver, by the releases of CUDA 13.0 and 13.5.
ABSENT = """========= COMPUTE-SANITIZER
========= Error: Target application terminated before first instrumented API call
========= Error: couldn't find exit code.
"""
CRASHED = """========= COMPUTE-SANITIZER
========= Error: process didn't terminate successfully
=========     The application may have hit an error when dereferencing Unified Memory from the host. Please rerun the \
application under cuda-gdb or a host debugger to catch host side errors.
========= Error: Target application terminated before first instrumented API call
"""  # noqa: E501
LOST = """========= COMPUTE-SANITIZER
========= Internal Sanitizer Error: The Sanitizer encountered an error while launching k and didn't track the launch. \
Errors might go undetected. (Unable to allocate enough memory to perform the requested operation)
=========
========= ERROR SUMMARY: 0 errors
"""  # noqa: E501


@pytest.mark.parametrize(
    ("text", "count", "first"),
    [
        (CLEAN, 0, None),
        (CLEAN_RACES, 0, None),
        (
            MEMCHECK,
            2,
            r"Invalid __global__ write of size 4 bytes at unaligned_kernel\(\)\+0x50 by thread "
            r".* is misaligned",
        ),
        (
            RACECHECK,
            1,
            r"Error: Race reported between Write access at sumKernel.* and Read access .*\[508 "
            r"hazards\]",
        ),
        (WARNED, 1, r"Warning: Race reported between Write access at RAW"),
        (
            SYNCCHECK,
            1,
            r"Barrier error detected. Divergent thread\(s\) in warp at ThreadDivergence",
        ),
        (INITCHECK, 162, r"Uninitialized __global__ memory read .* Address 0x7f3c7ec000fc$"),
        (ABSENT, None, None),
        (CRASHED, None, None),
        (LOST, None, "Internal Sanitizer Error"),
        ("", None, None),
    ],
)
def test_its_words_are_read(text: str, count: int | None, first: str | None) -> None:
    report = read_report(text)
    assert report.count == count
    if first is None:
        assert report.findings == ()
    else:
        assert re.match(first, report.findings[0])
    assert len(report.findings) == (2 if text == MEMCHECK else int(first is not None))


Makes = Callable[[str, str, int], Path]


@pytest.fixture
def stand_in(tmp_path: Path) -> Makes:
    """A program in its place that takes its arguments: writes a log, does `work`, and
    ends with a status."""

    def make(log: str, work: str = "", status: int = 0) -> Path:
        (tmp_path / "bin").mkdir(exist_ok=True)
        path = tmp_path / "bin" / "compute-sanitizer"
        path.write_text(
            "#!/bin/sh\n"
            'while [ "$1" != --log-file ]; do shift; done\n'
            f'printf %s {shlex.quote(log)} > "$2"\n'
            'while [ "$2" != -P ]; do shift; done\n'  # to the interpreter: what it is put around
            f'task="$5" answer="$6"\n{work}\nexit {status}\n'
        )
        path.chmod(0o755)
        return path

    return make


RIGHT = """printf '{"checked": {"max_rel_error": 0.0}}' > "$answer" """
WRONG = """printf '{"failed": {"kind": "wrong_answer", "message": "element 3"}}' > "$answer" """


@pytest.mark.parametrize(
    ("log", "work", "status", "says"),
    [
        (
            MEMCHECK,
            WRONG,
            FINDINGS_STATUS,
            r"memcheck found 2: Invalid __global__ write .* is misaligned.*; and 1 more$",
        ),
        (
            SYNCCHECK,
            RIGHT,
            FINDINGS_STATUS,
            r"memcheck found 1: Barrier error detected. Divergent thread\(s\) in warp at "
            r".*block \(0,0,0\)$",
        ),
        (
            CLEAN,
            WRONG,
            0,
            r"under compute-sanitizer's memcheck the check failed: wrong_answer: element 3",
        ),
        (
            ABSENT,
            "echo no such device",
            255,
            r"did not come to an end: .*first instrumented API call.*\n.*\nno such device",
        ),
        (LOST, RIGHT, 0, r"did not come to an end: .*Errors might go undetected"),
        (CLEAN, "", 1, "did not come to an end"),
        ("", "", 3, "did not come to an end: it said nothing"),
    ],
)
def test_what_it_finds_is_one_error(
    stand_in: Makes, log: str, work: str, status: int, says: str
) -> None:
    with pytest.raises(SanitizerError, match=re.compile(says, re.DOTALL)):
        sanitize("memcheck", SUBJECT, sanitizer=stand_in(log, work, status))


def test_a_kernel_in_which_it_finds_nothing_is_no_error(stand_in: Makes) -> None:
    sanitize("memcheck", SUBJECT, sanitizer=stand_in(CLEAN, RIGHT, 0))
    sanitize("racecheck", SUBJECT, sanitizer=stand_in(CLEAN_RACES, RIGHT, 0))


def test_outputs_are_left_as_they_are_where_reads_of_them_are_looked_for(
    stand_in: Makes, tmp_path: Path
) -> None:
    for tool, filled in (("racecheck", "true"), ("initcheck", "false")):
        sanitize(
            tool, SUBJECT, sanitizer=stand_in(CLEAN, f'{RIGHT}; cp "$task" {tmp_path}/task', 0)
        )
        assert f'"poisoned": {filled}' in (tmp_path / "task").read_text()


def ended(status: Path) -> bool:
    try:
        return status.read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_one_that_does_not_end_is_ended_with_all_it_started(
    stand_in: Makes, tmp_path: Path
) -> None:
    script = stand_in(CLEAN, f"sleep 60 & echo $! > {tmp_path}/pid; wait", 0)
    with pytest.raises(SanitizerError, match="took more than 1 s"):
        sanitize("memcheck", SUBJECT, sanitizer=script, limit_s=1.0)
    status = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    deadline = time.monotonic() + 5.0  # what is killed dies when it is next to run
    while not ended(status):
        assert time.monotonic() < deadline, status.read_text()
        time.sleep(0.01)


@pytest.mark.skipif(REASON is None, reason="there is a GPU")
def test_the_process_it_is_put_around_says_that_there_is_no_gpu(stand_in: Makes) -> None:
    with pytest.raises(
        SanitizerError, match="the check failed: infrastructure: gpu:0 cannot be used: this machine"
    ):
        sanitize("memcheck", SUBJECT, sanitizer=stand_in(CLEAN, '"$@"', 0))


def test_it_is_looked_for_in_its_places(stand_in: Makes, tmp_path: Path) -> None:
    program = stand_in(CLEAN, "", 0)
    assert find_sanitizer({"CUDA_HOME": str(tmp_path), "PATH": ""}) == program
    assert find_sanitizer({"PATH": str(tmp_path / "bin")}) == program
    program.chmod(0o644)
    try:
        elsewhere = find_sanitizer({"PATH": str(tmp_path / "bin")})
    except UsageError as error:
        assert "pip install nvidia-cuda-sanitizer-api" in str(error) and "CUDA_HOME" in str(error)
    else:
        assert elsewhere != program


def test_tools_are_asked_for_by_name() -> None:
    assert parse_tools("all") == TOOLS and parse_tools("synccheck,memcheck") == (
        "memcheck",
        "synccheck",
    )
    for wrong in ("", "leaks", "memcheck,", "memcheck all"):
        with pytest.raises(
            UsageError,
            match="is no tool of compute-sanitizer; give all, or some of memcheck,racecheck",
        ):
            parse_tools(wrong)


# --- the real one


def installed() -> Path | None:
    try:
        return find_sanitizer(os.environ)
    except UsageError:
        return None


SANITIZER = installed()
needs_sanitizer = pytest.mark.skipif(
    SANITIZER is None, reason="no compute-sanitizer: neither a CUDA toolkit nor its package has it"
)


@needs_sanitizer
@pytest.mark.skipif(REASON is None, reason="there is a GPU")
@pytest.mark.parametrize("tool", TOOLS)
def test_without_a_gpu_the_real_one_comes_to_no_end(tool: str) -> None:
    assert SANITIZER is not None
    with pytest.raises(
        SanitizerError, match=rf"(?s){tool} did not come to an end: .*first instrumented API call"
    ):
        sanitize(tool, SUBJECT, sanitizer=SANITIZER)


SHARED = "__shared__ float s[64]; int t = threadIdx.x;"


@needs_gpu
@needs_sanitizer
@pytest.mark.parametrize(
    ("body", "finds"),
    [
        ("Y[i] = tanhf(X[i]);", {}),
        (
            "Y[i] = tanhf(X[i]); if (i == 0) Y[8 * 64] = 1;",
            {"memcheck": "Invalid __global__ write of size 4"},
        ),
        (
            f"{SHARED} s[t] = X[i]; Y[i] = tanhf(X[i]) + 0 * s[63 - t];",
            {"racecheck": "Race reported"},
        ),
        (
            f"{SHARED} if (t < 13) __syncthreads(); s[t] = X[i]; Y[i] = tanhf(s[t]);",
            {"synccheck": "Barrier error"},
        ),
        (
            "Y[i] = tanhf(X[i]) + (Y[i] == 77.0f);",
            {"initcheck": "Uninitialized __global__ memory read"},
        ),
    ],
)
def test_on_a_gpu_each_tool_finds_what_it_is_for(
    body: str, finds: dict[str, str], tmp_path: Path
) -> None:
    made = request(tmp_path, body)
    assert SANITIZER is not None and made.library is not None
    subject = replace(SUBJECT, library=made.library)
    for tool in TOOLS:
        if tool not in finds:
            if not finds:
                sanitize(tool, subject, sanitizer=SANITIZER)
            continue
        with pytest.raises(SanitizerError, match=finds[tool]):
            sanitize(tool, subject, sanitizer=SANITIZER)

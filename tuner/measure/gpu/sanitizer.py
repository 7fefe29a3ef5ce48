"""NVIDIA's compute-sanitizer around one checked call of a kernel.

What its tools report becomes one error that names it. The kernel runs in a process of
its own (tuner.measure.gpu.check) on buffers of their exact size. The tool's wording is
that of its documentation, "Compute Sanitizer", and of its releases 2025.3 and 2026.4.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tuner.errors import TunerError, UsageError
from tuner.measure.gpu.check import Subject
from tuner.measure.gpu.runner import DEVICES
from tuner.measure.runner import parent_environment

# In this order: the others presume that no access is out of bounds.
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
ALL = "all"
NAME = "compute-sanitizer"
LIMIT_S = 900.0  # of one tool: racecheck slows kernels a hundredfold
FINDINGS_STATUS = 86  # status by which the tool says that it found something
CONNECT_S = 120  # from the process's start to its first call of the driver
MOST_LINES = 5  # of a report that go into the error's text
LAST_WORDS = 2000  # characters of what the tool or the process said where it did not come to an end
# Errors of calls of the driver are left to whoever calls it. Padding: an access beyond
# a buffer must not end in the next one.
_OPTIONS: Mapping[str, Sequence[str]] = {
    "memcheck": ("--report-api-errors", "no", "--padding", "4096")
}
_LINE = re.compile(r"^=+(?: (?P<text>.*))?$")
_SUMMARY = re.compile(r"^ERROR SUMMARY: (\d+) errors?$")
_RACES = re.compile(
    r"^RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) warnings?\)$"
)
_INTERNAL = re.compile(r"Internal (Sanitizer )?Error", re.IGNORECASE)
# Lines that begin no report.
_OTHER = re.compile(
    r"^(COMPUTE-SANITIZER|Target application|Error: (Target app|process didn't|couldn't)|[A-Z]+ "
    r"SUMMARY:)"
)


class SanitizerError(TunerError):
    """compute-sanitizer found something in a kernel, or did not come to an end."""

    code = "sanitizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a tool reported."""

    count: int | None  # of what it found; None where it never came to its summary, or lost track
    findings: tuple[str, ...]  # those that it printed, each in one line


def parse_tools(text: str) -> tuple[str, ...]:
    """Tools by a comma-separated text, in the order in which they run.

    Raises UsageError.
    """
    requested = text.split(",") if text != ALL else list(TOOLS)
    unknown = [name for name in requested if name not in TOOLS]
    if unknown:
        raise UsageError(
            f"{unknown[0]!r} is no tool of {NAME}; give {ALL}, or some of {','.join(TOOLS)}"
        )
    return tuple(name for name in TOOLS if name in requested)


def find_sanitizer(environment: Mapping[str, str] | None = None) -> Path:
    """Find compute-sanitizer.

    In CUDA_HOME, on the path, in NVIDIA's package, or in a toolkit in its usual place.
    Raises UsageError where there is none.
    """
    variables = os.environ if environment is None else environment
    homes = [Path(variables["CUDA_HOME"])] if variables.get("CUDA_HOME") else []
    package = importlib.util.find_spec("nvidia")
    packaged = (
        [Path(folder) for folder in package.submodule_search_locations or ()]
        if package is not None
        else []
    )
    places = [home / folder / NAME for home in homes for folder in ("bin", NAME)]
    places += [
        Path(folder) / NAME for folder in variables.get("PATH", "").split(os.pathsep) if folder
    ]
    places += [
        path for folder in packaged for path in sorted(folder.glob(f"*/*/{NAME}"), reverse=True)
    ]
    places += [Path("/usr/local/cuda/bin") / NAME]
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return place
    raise UsageError(
        f"no {NAME}: pip install nvidia-cuda-sanitizer-api, or set CUDA_HOME to a CUDA toolkit "
        f"that has it (cuda-sanitizer)"
    )


def sanitize(tool: str, subject: Subject, *, sanitizer: Path, limit_s: float = LIMIT_S) -> None:
    """Check a kernel under a tool.

    Raises SanitizerError with what the tool found, or where it could not be run.
    """
    with tempfile.TemporaryDirectory(prefix="tuner-sanitizer-") as scratch:
        folder = Path(scratch)
        task, answer, log = folder / "task.json", folder / "answer.json", folder / "log"
        # What was filled before cannot be caught as read before it was written.
        task.write_text(json.dumps(asdict(replace(subject, poisoned=tool != "initcheck"))))
        command = [
            str(sanitizer), "--tool", tool, "--error-exitcode", str(FINDINGS_STATUS),
            "--log-file", str(log), "--launch-timeout", str(CONNECT_S), "--target-processes", "all",
            "--show-backtrace", "no", *_OPTIONS.get(tool, ()),
            sys.executable, "-P", "-m", "tuner.measure.gpu.check", str(task), str(answer),
        ]  # fmt: skip
        printed = _run(command, folder, tool, limit_s)
        text = log.read_text(errors="replace") if log.is_file() else ""
        report = read_report(text)
        if report.count:
            raise SanitizerError(_finding(tool, report))
        failed = json.loads(answer.read_text()).get("failed") if answer.is_file() else None
        if failed is not None:
            raise SanitizerError(
                f"under {NAME}'s {tool} the check failed: {failed['kind']}: {failed['message']}"
            )
        if report.count is None or not answer.is_file():
            words = "\n".join(filter(None, (text.strip(), printed.strip())))[-LAST_WORDS:]
            raise SanitizerError(
                f"{NAME}'s {tool} did not come to an end: {words or 'it said nothing'}"
            )


def read_report(text: str) -> Report:
    """What the tool's text says.

    A report is a line after the prefix, and what is indented below it.
    """
    count: int | None = None
    blocks: list[list[str]] = []
    open_block = False
    for match in filter(None, map(_LINE.match, text.splitlines())):
        line = match["text"] or ""
        if summary := _SUMMARY.match(line) or _RACES.match(line):
            count = (count or 0) + sum(map(int, summary.groups()))
        if not line.strip():
            open_block = False
        elif line.startswith(" "):
            if open_block:
                blocks[-1].append(line.strip())
        else:
            open_block = not _OTHER.match(line)
            if open_block:
                blocks.append([line.strip()])
    if _INTERNAL.search(text):
        count = None
    return Report(count=count, findings=tuple(" ".join(block[:MOST_LINES]) for block in blocks))


def _finding(tool: str, report: Report) -> str:
    first = report.findings[0] if report.findings else "it printed none of them"
    others = (
        f"; and {report.count - 1} more" if report.count is not None and report.count > 1 else ""
    )
    return f"{NAME}'s {tool} found {report.count}: {first}{others}"


def _run(command: Sequence[str], folder: Path, tool: str, limit_s: float) -> str:
    """What the command printed. It and all that it started are gone afterwards."""
    devices = {name: os.environ[name] for name in DEVICES if name in os.environ}
    environment = parent_environment(os.environ) | devices
    with (folder / "said").open("w+") as printed:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise SanitizerError(f"{command[0]} cannot be run: {error.strerror}") from error
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired as error:
            raise SanitizerError(
                f"{NAME}'s {tool} took more than {limit_s:g} s; verify without this tool"
            ) from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed.seek(0)
        return printed.read()[-LAST_WORDS:]

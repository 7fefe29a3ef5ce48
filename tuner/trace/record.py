"""The record of a program's calls: one JSON document, from the files of its processes.

```
{"schema": 1, "command": ["python", "serve.py"], "exit_code": 0, "elapsed_s": 12.5,
 "processes": [{"pid", "arguments", "notes": []}],
 "calls": [{"library": "numpy", "operator": "numpy.matmul", "arguments": [argument], "count",
            "total_s"}]}
```

An argument is `{"shape", "strides", "dtype"}` with strides in elements, null where there are
none, `{"value"}`, `{"list": [argument]}` or `{"type"}`; one that was given by name has
`"name"` too. Counts and times of what was sampled are estimates.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from tuner.errors import UsageError

SCHEMA = 1
LARGEST_BYTES = 64 << 20
# What reading a document that is no whole record raises; numbers may be infinite.
_FAULTS = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
Library = Literal["numpy", "torch", "onnxruntime"]
Argument = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedCall:
    """Calls of one operator with arguments of one kind."""

    library: Library
    operator: str  # as the library calls it, such as numpy.matmul or aten::linear
    arguments: tuple[Argument, ...]
    count: float
    total_s: float  # of all of them

    @property
    def kind(self) -> str:
        """What equal calls have in common."""
        return json.dumps([self.library, self.operator, self.arguments], sort_keys=True)

    @property
    def shapes(self) -> str:
        """The arguments' shapes for people, such as 32×64 64×16 (strided) float32."""
        operands = (each for each in self.arguments if each.get("name") != "out")
        return " ".join(filter(None, map(_shape, operands)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One of the program's processes that ran Python."""

    pid: int
    arguments: tuple[str, ...]
    notes: tuple[str, ...]  # what of it was not recorded, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What a program called."""

    command: tuple[str, ...]
    exit_code: int
    elapsed_s: float
    processes: tuple[Process, ...]
    calls: tuple[TracedCall, ...]  # the longest in all first

    @property
    def total_s(self) -> float:
        """Seconds in all calls of all threads."""
        return sum(call.total_s for call in self.calls)


def _shape(argument: Argument) -> str:
    if "list" in argument:
        return "[" + " ".join(filter(None, map(_shape, argument["list"]))) + "]"
    if "shape" not in argument:
        return ""
    shape = argument["shape"]
    text = "×".join(map(str, shape)) or "scalar"
    return text if is_dense(shape, argument["strides"]) else text + "*"


def is_dense(shape: Sequence[int], strides: Sequence[int] | None) -> bool:
    """Whether a tensor lies in memory in the order of its dimensions, without gaps."""
    following = 1
    for extent, stride in zip(reversed(shape), reversed(strides or ()), strict=False):
        if extent != 1 and stride != following:
            return False
        following *= extent
    return strides is not None


def finite(argument: Argument) -> Argument:
    """The argument with infinities and NaN as texts, since JSON of others has no numbers for
    them."""
    if "list" in argument:
        return {**argument, "list": [finite(entry) for entry in argument["list"]]}
    if "value" not in argument:
        return argument
    value = argument["value"]
    if isinstance(value, list):
        return {**argument, "value": [finite({"value": entry})["value"] for entry in value]}
    is_odd = isinstance(value, float) and not math.isfinite(value)
    return {**argument, "value": str(value)} if is_odd else argument


def encoded(trace: Trace) -> bytes:
    """The record as the content of its file."""
    document = {"schema": SCHEMA, **asdict(trace)}
    return (json.dumps(document, indent=1) + "\n").encode()


def read(path: Path) -> Trace:
    """The record in a file. Raises UsageError for one that is none."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise UsageError(
                f"{path} has {path.stat().st_size} bytes; a record has at most {LARGEST_BYTES}"
            )
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is no record of tuner trace: it is not JSON") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        schema = document.get("schema") if isinstance(document, dict) else None
        raise UsageError(
            f"{path} is no record of tuner trace: schema {schema!r}, this version reads {SCHEMA}"
        )
    try:
        return _trace(document)
    except _FAULTS as error:
        raise UsageError(f"{path} is no whole record of tuner trace: {error!r}") from None


def _trace(document: Mapping[str, Any]) -> Trace:
    return Trace(
        command=tuple(map(str, document["command"])),
        exit_code=int(document["exit_code"]),
        elapsed_s=float(document["elapsed_s"]),
        processes=tuple(
            Process(
                pid=int(each["pid"]),
                arguments=tuple(map(str, each["arguments"])),
                notes=tuple(map(str, each["notes"])),
            )
            for each in document["processes"]
        ),
        calls=tuple(map(read_call, document["calls"])),
    )


def read_call(described: Mapping[str, Any]) -> TracedCall:
    """A call of a document. Raises KeyError, TypeError and ValueError for what is none."""
    return _call(described, float(described["count"]), float(described["total_s"]))


def _call(described: Mapping[str, Any], count: float, total_s: float) -> TracedCall:
    library = described["library"]
    if library not in get_args(Library):
        raise ValueError(f"library {library!r}")
    if not (0 < count < 1e15 and 0 <= total_s < 1e12):
        raise ValueError(f"count {count} in {total_s} s")
    return TracedCall(
        library=library,
        operator=str(described["operator"]),
        arguments=tuple(map(_argument, described["arguments"])),
        count=count,
        total_s=total_s,
    )


def _argument(described: Mapping[str, Any]) -> Argument:
    """Raises ValueError for a tensor whose shape is none."""
    if "list" in described:
        return {**described, "list": [_argument(entry) for entry in described["list"]]}
    if "shape" in described:
        shape, strides = described["shape"], described["strides"]
        for extents in (shape, shape if strides is None else strides):
            if len(extents) != len(shape) or not all(type(extent) is int for extent in extents):
                raise ValueError(f"shape {shape} with strides {strides}")
        if any(extent < 0 for extent in shape):
            raise ValueError(f"shape {shape}")
    return dict(described)


def merged(folder: Path) -> tuple[tuple[Process, ...], tuple[TracedCall, ...]]:
    """What all processes of a recording left in a folder."""
    processes, calls = [], []
    for path in sorted(folder.glob("*.lines")):
        lines = list(documents(path))
        slots = path.with_suffix(".slots")
        numbers = slots.read_bytes() if slots.exists() else b""
        processes += _process(lines)
        calls += _calls(lines, [*struct.iter_unpack("dd", numbers)])
    by_kind: dict[str, TracedCall] = {}
    for call in calls:
        same = by_kind.get(call.kind)
        if same is not None:
            count, total_s = same.count + call.count, same.total_s + call.total_s
            call = replace(call, count=count, total_s=total_s)
        by_kind[call.kind] = call
    return tuple(processes), tuple(sorted(by_kind.values(), key=lambda call: -call.total_s))


def documents(path: Path) -> Iterable[dict[str, Any]]:
    """The lines of a file but for one that a killed process left half written."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _process(lines: Sequence[Mapping[str, Any]]) -> list[Process]:
    notes = tuple(line["note"] for line in lines if "note" in line)
    return [
        Process(pid=each["pid"], arguments=tuple(each["arguments"]), notes=notes)
        for each in (line["process"] for line in lines if "process" in line)
    ]


def _calls(
    lines: Sequence[Mapping[str, Any]], numbers: Sequence[tuple[float, float]]
) -> list[TracedCall]:
    """The calls of one process."""
    counted = [(line, *numbers[line["slot"]]) for line in lines if "slot" in line and numbers]
    return [_call(line, count, nanoseconds / 1e9) for line, count, nanoseconds in counted if count]

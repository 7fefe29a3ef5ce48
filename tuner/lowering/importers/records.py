"""MetaSchedule's JSON databases, read as untrusted data.

Sizes, the form of documents, and names are checked against what is allowed: programs of
plain loops, and primitives that keep what a program computes. Whatever could bring code
of its own is refused (pragmas that import sources, tensor intrinsics, layout maps).
Nothing here loads TVM or builds one of its objects.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tuner.errors import UsageError
from tuner.export.errors import ManifestError
from tuner.export.manifest import open_regular

# The files of a MetaSchedule work_dir.
WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
LARGEST_FILE_BYTES = 64 << 20
LARGEST_LINE = 8 << 20  # characters of one workload or record
MOST_RECORDS = 10_000
MOST_INSTRUCTIONS = 5_000
MOST_NODES = 200_000  # of a workload's graph
PRIMITIVES = frozenset({
    "GetSBlock", "GetLoops", "GetChildBlocks", "GetProducers", "GetConsumers", "GetOutputBlocks",
    "SamplePerfectTile", "SampleCategorical", "SampleComputeLocation", "SamplePartitionedTile",
    "Split", "LoopPartition", "Merge", "Fuse", "Reorder", "AddUnitLoop", "Parallel", "Vectorize",
    "Unroll", "ComputeAt", "ReverseComputeAt", "ComputeInline", "ReverseComputeInline", "CacheRead",
    "CacheWrite", "CacheIndex", "ReIndex", "DecomposeReduction", "RFactor", "StorageAlign",
    "PadEinsum", "RollingBuffer", "Annotate", "Unannotate", "EnterPostproc",
})  # fmt: skip
# How the name of an annotation may begin.
NOTES = ("meta_schedule.", "pragma_auto_unroll_max_step", "pragma_unroll_explicit")
# How the type of a workload's node may begin.
NODES = (
    "None", "int", "float", "bool", "str", "ir.", "prim.", "tirx.", "s_tir.", "relax.",
    "ffi.String", "ffi.Array", "ffi.Map", "ffi.Shape",
)  # fmt: skip


class RecordError(UsageError):
    """A directory that holds no database, or a record that may not be replayed."""

    code = "invalid_record"


@dataclass(frozen=True, kw_only=True)
class ForeignRecord:
    """A record that may be replayed."""

    number: int  # its line in the file of records, from 1
    workload: str  # TVM's JSON of the module
    trace: str  # JSON of instructions and decisions
    claimed_s: float | None  # the mean time that it claims; only an order in which to try


def read_database(directory: Path) -> tuple[ForeignRecord | RecordError, ...]:
    """The records of a MetaSchedule work_dir, in the order of the file.

    Each is a record, or the reason why it may not be replayed. Raises RecordError where
    the directory holds no such database.
    """
    workloads = _lines(directory / WORKLOADS)
    lines = _lines(directory / RECORDS)
    if len(lines) > MOST_RECORDS:
        raise RecordError(
            f"{directory / RECORDS} has {len(lines)} records; at most {MOST_RECORDS} are taken"
        )
    return tuple(_tried(number, line, workloads) for number, line in enumerate(lines, start=1))


def _lines(path: Path) -> list[str]:
    try:
        with open_regular(path) as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
        text = content.decode()
    except ManifestError as error:
        raise RecordError(f"{path} is a link or no plain file") from error
    except OSError as error:
        raise RecordError(
            f"{path}: {error.strerror}; a MetaSchedule work_dir has {WORKLOADS} and {RECORDS}"
        ) from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path} is no text") from error
    if len(content) > LARGEST_FILE_BYTES:
        raise RecordError(f"{path} is larger than {LARGEST_FILE_BYTES >> 20} MiB")
    return [line for line in text.split("\n") if line.strip()]


def _tried(number: int, line: str, workloads: Sequence[str]) -> ForeignRecord | RecordError:
    try:
        return _record(number, line, workloads)
    except RecordError as error:
        return RecordError(f"record {number}: {error}")
    except (ValueError, RecursionError, binascii.Error) as error:
        return RecordError(f"record {number} is malformed: {error}")


def _record(number: int, line: str, workloads: Sequence[str]) -> ForeignRecord:
    match _json(line):
        case [int() as place, [[list() as instructions, list() as decisions], seconds, _, _]] if (
            0 <= place < len(workloads)
        ):
            _check_instructions(instructions)
            trace = json.dumps([instructions, decisions])
            return ForeignRecord(
                number=number,
                workload=_workload(workloads[place]),
                trace=trace,
                claimed_s=_mean(seconds),
            )
    raise RecordError(
        "it is not [workload, [trace, seconds, target, arguments]] of a workload that is there"
    )


def _json(line: str) -> Any:
    if len(line) > LARGEST_LINE:
        raise RecordError(f"a line of more than {LARGEST_LINE >> 20} MiB")
    return json.loads(line, parse_constant=_no_number)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _mean(seconds: object) -> float | None:
    numbers = (
        [value for value in seconds if type(value) in (int, float)]
        if isinstance(seconds, list)
        else []
    )
    good = [float(value) for value in numbers if 0 < value < 1e9]
    return sum(good) / len(good) if good else None


def _check_instructions(instructions: Sequence[object]) -> None:
    if len(instructions) > MOST_INSTRUCTIONS:
        raise RecordError(
            f"{len(instructions)} instructions; at most {MOST_INSTRUCTIONS} are replayed"
        )
    for instruction in instructions:
        match instruction:
            case [str() as kind, list() as inputs, list() as attributes, list()] if (
                kind in PRIMITIVES
            ):
                if kind in ("Annotate", "Unannotate"):
                    _check_note([*inputs, *attributes])
            case [str() as kind, *_]:
                raise RecordError(f"{kind[:80]!r} is no primitive that may be replayed")
            case _:
                raise RecordError("an instruction is not [name, inputs, attributes, outputs]")


def _check_note(values: Sequence[object]) -> None:
    names = [
        value
        for value in values
        if isinstance(value, str) and value.strip('"').startswith(("pragma", "meta_schedule."))
    ]
    allowed = [name for name in names if name.strip('"').startswith(NOTES)]
    if not allowed or len(allowed) != len(names):
        raise RecordError(
            f"it annotates with {str(values)[:120]}; only MetaSchedule's own notes and "
            f"unrolling are taken"
        )


def _workload(line: str) -> str:
    """TVM's JSON of a workload.

    A line is [hash, base64 of the length in 8 bytes and the text].
    """
    match _json(line):
        case [str(), str() as packed]:
            content = base64.b64decode(packed, validate=True)
        case _:
            raise RecordError("its workload is not [hash, module]")
    if len(content) < 8 or int.from_bytes(content[:8], "little") != len(content) - 8:
        raise RecordError("its workload is cut short")
    text = content[8:].decode()
    match _json(text):
        case {"nodes": list() as nodes, "root_index": int()} if len(nodes) <= MOST_NODES:
            for node in nodes:
                _check_node(node)
        case _:
            raise RecordError(f"its workload is no graph of at most {MOST_NODES} nodes")
    return text


def _check_node(node: object) -> None:
    kind = node.get("type") if isinstance(node, dict) else None
    if not isinstance(kind, str) or not kind.startswith(NODES):
        raise RecordError(
            f"its workload holds {str(kind)[:80]!r}, which no program of plain loops has"
        )
    data = node.get("data") if isinstance(node, dict) else None
    if isinstance(data, str) and data.startswith("pragma"):
        raise RecordError(f"its workload has the pragma {data[:80]!r}")

"""Workloads on the command line: specs, or a notation file with its symbols' extents."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.errors import UsageError, WorkloadError
from tuner.measure.objective import objective_choices

if TYPE_CHECKING:
    from tuner.workload.spec import Portfolio
    from tuner.workload.workload import Workload


def finite_percent(parameter: typer.CallbackParam, value: float | None) -> float | None:
    """Refuses infinity, which the bounds of an option let pass. Raises UsageError."""
    if value is not None and not math.isfinite(value):
        raise UsageError(f"{parameter.opts[0]} {value} passes any kernel; give percent, such as 5")
    return value


Specs = Annotated[
    list[str] | None,
    typer.Argument(metavar="SPEC...", help="workloads, such as matmul:M=512,N=512,K=512"),
]
Notation = Annotated[
    str | None,
    typer.Option(
        "--notation", metavar="FILE", help="a kernel in the tensor notation; - is standard input"
    ),
]
Shapes = Annotated[
    str | None,
    typer.Option(
        "--shapes", metavar="NAME=EXTENT,...", help="the extents of the notation's symbols"
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", metavar="N", help="threads of the kernel")
]
TargetText = Annotated[
    str | None, typer.Option("--target", metavar="T", help="what to tune for; cpu is this machine")
]
CacheText = Annotated[
    str | None,
    typer.Option(
        "--cache", metavar="warm|cold", help="what timed calls find in the caches; warm by itself"
    ),
]
ObjectiveText = Annotated[
    str | None,
    typer.Option(
        "--objective",
        metavar="NAME[,NAME]",
        help=f"what kernels are chosen by: {objective_choices()}; two for their Pareto front",
    ),
]
WithinPercent = Annotated[
    float | None,
    typer.Option(
        "--within",
        metavar="PCT",
        min=0.0,
        callback=finite_percent,
        help="only kernels slower than the fastest by at most PCT percent",
    ),
]
DeviceCommands = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="COMMAND",
        help="starts the agent on a device that is the declared CPU, such as "
        "'ssh HOST ./tuner-agent'; several times for several devices",
    ),
]

Traffic = Annotated[
    Path | None,
    typer.Option(
        "--traffic", metavar="FILE", help="of a SPEC with a range: lines ROWS WEIGHT, its calls"
    ),
]


def device_setting(commands: DeviceCommands) -> str | None:
    """The commands as one setting. Raises UsageError for one that it cannot hold."""
    for command in commands or ():
        if ";" in command or not command.strip():
            raise UsageError(f"--device {command!r} must be one command, without a semicolon")
    return "; ".join(commands) if commands else None


def check_devices(commands: DeviceCommands, target: str) -> None:
    """Raises UsageError where --device was given for what no device measures."""
    if commands and not target.strip().lower().startswith("cpu:"):
        raise UsageError(
            f"--device is for a declared CPU, such as --target cpu:neoverse-n1 (tuner targets "
            f"lists them), and the target is {target}"
        )


def families_of(specs: Sequence[str], traffic: Path | None) -> tuple[Portfolio, ...]:
    """The SPECs with a range as families, weighted by the traffic in a file.

    Raises UsageError (WorkloadError) for a wrong spec or file.
    """
    from tuner.workload.spec import parse_portfolio
    from tuner.workload.traffic import read_traffic, with_traffic

    families = tuple(parse_portfolio(spec) for spec in specs)
    if traffic is None:
        return families
    if len(families) != 1:
        raise UsageError(f"--traffic is of one SPEC with a range, and {len(families)} were given")
    return (with_traffic(families[0], read_traffic(traffic)),)


def read_workloads(
    specs: Sequence[str] | None,
    notation: str | None,
    shapes: str | None,
    numerics: str = "strict",
) -> list[Workload]:
    """All workloads that were given, checked; at least one. `numerics`: of the notation.

    Raises UsageError (WorkloadError with its position) for the first that is wrong.
    """
    from tuner.workload.pattern_files import spec_with_file
    from tuner.workload.spec import parse_spec, workload_from_notation

    if shapes is not None and notation is None:
        raise UsageError(f"--shapes {shapes} belongs to --notation FILE, which is missing")
    workloads = [parse_spec(spec_with_file(spec)) for spec in specs or ()]
    if notation is not None:
        text = _read(notation)
        try:
            extents = extents_of(shapes or "")
            workloads.append(workload_from_notation(text, extents, numerics=numerics))
        except WorkloadError as error:
            raise WorkloadError(f"{notation}: {error}") from None
    if not workloads:
        raise UsageError(
            "no workload was given; write a SPEC such as matmul:M=512,N=512,K=512, or "
            "--notation FILE"
        )
    seen: dict[str, Workload] = {}
    for workload in workloads:
        if workload.key in seen:
            raise UsageError(
                f"{workload.spec} and {seen[workload.key].spec} are the same workload; give it once"
            )
        seen[workload.key] = workload
    return workloads


def read_workload(spec: str | None, notation: str | None, shapes: str | None) -> Workload:
    """The one workload that was given. Raises as `read_workloads`, and for several."""
    workloads = read_workloads(None if spec is None else [spec], notation, shapes)
    if len(workloads) > 1:
        raise UsageError(f"a SPEC ({spec}) and --notation {notation} were given; give one of them")
    return workloads[0]


def _read(name: str) -> str:
    """The text of a notation file; `-` is standard input. Raises UsageError."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--notation {name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"--notation {name} is not UTF-8 text: byte {error.start}") from None


def extents_of(text: str) -> dict[str, int]:
    """The extents in `NAME=EXTENT,…`. Raises UsageError."""
    extents: dict[str, int] = {}
    for part in (piece.strip() for piece in text.split(",") if piece.strip()):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not re.fullmatch("[0-9]{1,18}", value):
            raise UsageError(
                f"--shapes has {part[:60]!r}; write NAME=EXTENT with a whole number, such as "
                f"M=512,N=512"
            )
        if name in extents:
            raise UsageError(f"--shapes gives {name} twice")
        extents[name] = int(value)
    return extents

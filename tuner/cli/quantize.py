"""`tuner quantize MODEL.onnx`: a model of 8-bit integers of a float one."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner import units
from tuner.cli.invocation import Invocation
from tuner.cli.models import is_model
from tuner.cli.output_file import check_output, write_or_keep
from tuner.cli.workloads import Threads
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.cli.backend.roles import Backend
    from tuner.models.quantize.result import LayerLoss, Options, Quantized

_LAYERS = ("layer", "operator", "loss alone", "weights", "as integers", "in the file")
_LONGEST_S = 300.0  # a confined process has 600 s of CPU


def quantize(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL.onnx", help="a model in float32")],
    calibrate: Annotated[
        Path,
        typer.Option(
            "--calibrate",
            metavar="DIR|FILE.npz",
            help="inputs as the model will see them, by their names; a folder has several files",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="OUT.onnx", help="where the result goes")
    ],
    method: Annotated[
        str, typer.Option(help="how ranges are chosen: max, percentile or entropy")
    ] = "max",
    percentile: Annotated[
        float | None,
        typer.Option(
            metavar="PCT", help="of a tensor's numbers, with --method percentile; default: 99.99"
        ),
    ] = None,
    max_loss: Annotated[
        float,
        typer.Option(metavar="SHARE", help="error of the outputs, relative to them, that is taken"),
    ] = 0.05,
    keep: Annotated[
        str | None,
        typer.Option(metavar="NAME,…", help="operators that stay in float, by their names"),
    ] = None,
    shapes: Annotated[
        str | None, typer.Option(metavar="NAME=EXTENT,…", help="extents that the file leaves open")
    ] = None,
    rows: Annotated[int, typer.Option(metavar="N", help="of the inputs, at most")] = 512,
    seconds: Annotated[
        float, typer.Option(metavar="S", help="about how long it may take, 10 to 300")
    ] = _LONGEST_S,
    times: Annotated[
        bool, typer.Option("--times", help="estimate what each network takes, tuned, on this CPU")
    ] = False,
    threads: Threads = None,
) -> None:
    """Writes a model of 8-bit integers that ONNX Runtime and tuner take, and says what each
    layer loses and gains. Layers that lose too much stay in float."""
    from tuner.models.files.input_shapes import parse_shapes
    from tuner.models.quantize.command import quantize_file

    invocation = Invocation.here(context)
    _check_files(model, out)
    if threads is not None and not times:
        raise UsageError(f"--threads {threads} belongs to --times")
    options = replace(_options(method, percentile, max_loss, keep, rows, seconds), kernels=times)
    # Opened first, so that a database that cannot be read costs nothing.
    with invocation.backend(threads=threads) if times else nullcontext() as backend:
        result = quantize_file(Path(model), calibrate, parse_shapes(shapes or ""), options)
        write_or_keep(out, result.content)
        times_s = None if backend is None else _times(invocation, backend, result)
    _report(invocation, out, result, times_s)


def _check_files(model: str, out: Path) -> None:
    if not is_model(model) or not is_model(str(out)):
        raise UsageError(f"{model} becomes {out}; both must be .onnx files")
    if out.exists() and Path(model).exists() and out.samefile(model):
        raise UsageError(f"-o {out} is the model itself; give another file")
    check_output(out)


def _options(
    method: str,
    percentile: float | None,
    max_loss: float,
    keep: str | None,
    rows: int,
    seconds: float,
) -> Options:
    from tuner.models.quantize.ranges import METHODS
    from tuner.models.quantize.result import Options

    methods = {name: name for name in METHODS}
    if method not in methods:
        raise UsageError(f"--method is {method!r}; known are {', '.join(METHODS)}")
    if percentile is not None and method != "percentile":
        raise UsageError(f"--percentile {percentile:g} belongs to --method percentile")
    for flag, value, low, high in (
        ("--percentile", percentile, 50.0, 100.0),
        ("--max-loss", max_loss, 0.0, 1.0),
        ("--rows", rows, 1, 1 << 20),
        ("--seconds", seconds, 10.0, _LONGEST_S),
    ):
        if value is not None and not low <= value <= high:
            raise UsageError(f"{flag} is {value:g}; it may be {low:g} to {high:.7g}")
    names = tuple(part.strip() for part in (keep or "").split(",") if part.strip())
    options = Options(
        method=methods[method], max_loss=max_loss, keep=names, rows=rows, seconds=seconds
    )
    return options if percentile is None else replace(options, percentile=percentile)


def _times(invocation: Invocation, backend: Backend, result: Quantized) -> list[float] | None:
    """Seconds of a call of each choice; None, with a note, where too little was measured."""
    from tuner.api.estimates import TooFewKernels

    parts = [part for kernels in result.kernels for part in kernels]
    distinct = {part.workload.key: part.workload for part in parts}
    try:
        items = backend.kernels.estimate([*distinct.values()]).items
    except TooFewKernels as error:
        invocation.output.note(f"no times: {error}")
        return None
    seconds = {key: item.median_s for key, item in zip(distinct, items, strict=True)}
    return [
        sum(seconds[part.workload.key] * part.calls for part in kernels)
        for kernels in result.kernels
    ]


def _report(
    invocation: Invocation, out: Path, result: Quantized, times: list[float] | None
) -> None:
    output = invocation.output
    if output.as_json:
        document = {"file": str(out), **result.document}
        for choice, time_s in zip(document["choices"], times or (), strict=bool(times)):
            choice["time_s"] = time_s
        output.document(document)
        return
    output.table(_LAYERS, [_layer(layer) for layer in result.layers], right=_LAYERS[2:5])
    output.line()
    columns, rows = _choices(result, times)
    output.table(columns, rows, right=columns[:-1])
    for left in result.left:
        output.note(f"{left.op} {left.name} stays in float: it {left.reason}")
    output.note(
        f"ranges are of {result.rows} rows, losses of {result.measured_rows} of them; 100% is as "
        f"much as the outputs themselves"
    )
    count = sum(layer.quantized for layer in result.layers)
    output.line(
        f"{out}: {count} of {len(result.layers)} layers are integers, the outputs lose "
        f"{result.choice.loss:.2%}, constants {units.size(result.float_bytes)} → "
        f"{units.size(result.choice.nbytes)}"
    )


def _layer(layer: LayerLoss) -> tuple[str, ...]:
    sizes = (layer.float_bytes, layer.nbytes) if layer.nbytes else ()
    before, after = map(units.size, sizes) if sizes else ("", "")
    kind = "int8" if layer.quantized else "float32"
    return (layer.name, layer.op, f"{layer.loss:.2%}", before, after, kind)


def _choices(
    result: Quantized, times: list[float] | None
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows of the table of choices."""
    columns: tuple[str, ...] = ("layers in float", "loss", "same greatest", "constants")
    rows: list[tuple[str, ...]] = [
        (
            str(choice.floats),
            f"{choice.loss:.2%}",
            "" if choice.agreement is None else f"{choice.agreement:.1%}",
            units.size(choice.nbytes),
        )
        for choice in result.choices
    ]
    if times is not None:
        columns = (*columns, "time")
        rows = [(*row, units.seconds(time_s)) for row, time_s in zip(rows, times, strict=True)]
    marks = ("the file" if choice.chosen else "" for choice in result.choices)
    return (*columns, ""), [(*row, mark) for row, mark in zip(rows, marks, strict=True)]

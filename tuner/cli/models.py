"""`tuner tune MODEL.onnx`: the model's kernels within one budget, and one library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner import units
from tuner.cli.model_numerics import COLUMNS as NUMERICS_COLUMNS
from tuner.cli.model_numerics import rows as numerics_rows
from tuner.cli.model_race import COLUMNS as RACE_COLUMNS
from tuner.cli.model_race import rows as race_rows
from tuner.cli.results import conclude
from tuner.errors import UsageError
from tuner.measure.cache import refuse_cold
from tuner.measure.objective import refuse_goal
from tuner.measure.statistics import disturbed

if TYPE_CHECKING:
    from tuner.app.models.command_time import CommandTime
    from tuner.app.models.family import Batch, Family, Listed
    from tuner.app.models.tuned_model import TunedModel
    from tuner.cli.invocation import Invocation
    from tuner.db.engine import Database
    from tuner.models.files.input_shapes import InputShapes
    from tuner.models.files.input_values import InputValues
    from tuner.models.graph import Graph
    from tuner.models.tuning.shares import KernelShare
    from tuner.settings import Settings
    from tuner.target.target import Target
    from tuner.workers.jobs.model_library import Model

SUFFIX = ".onnx"
_SHOWN = 16  # elements of a fixed input
_COLUMNS = ("kernel", "calls", "of the model", "a call, inside", "alone", "speed", "of peak")


def is_model(spec: str) -> bool:
    """Whether an argument names a model's file."""
    return spec.endswith(SUFFIX)


def tune_model(
    invocation: Invocation,
    path: str,
    *,
    shapes: str,
    inputs: Path | None,
    directory: str | None,
    name: str | None,
    frameworks: str,
    flags: dict[str, Any],
) -> None:
    """Tunes a model and, with a directory, exports it there.

    `shapes` gives the extents that its inputs name, `NAME=EXTENT,…`, and whole shapes of
    inputs, `INPUT=1x3x48x192`. One extent may be a range of batches,
    `NAME=LEAST..GREATEST`, or a list, `NAME=A|B|C`. `inputs` is an `.npz` file of values
    of inputs. `frameworks` names what the library is for, with commas. Raises ModelRefused
    before anything is written.
    """
    from tuner.app.devices import device_lanes
    from tuner.app.machine import checked_target, with_limits
    from tuner.app.models.checked_import import checked_import
    from tuner.app.models.command_time import CommandTime
    from tuner.app.models.executors import check_runnable
    from tuner.app.models.tuned_model import AS_A_WHOLE, MEETS_ITS_OWN, submit_model
    from tuner.cli.progress import TuningDisplay, gain_text
    from tuner.export.directory import check_replaceable
    from tuner.export.frameworks import checked_frameworks
    from tuner.export.naming import check_library_name
    from tuner.models.files.input_values import read_values
    from tuner.models.importer import import_file, read_file
    from tuner.workers.jobs.model_library import Model

    loaded = invocation.settings(**flags)
    settings = loaded.values
    refuse_cold(settings.cache, MEETS_ITS_OWN)
    refuse_goal(settings.goal, AS_A_WHOLE)
    if settings.server:
        raise UsageError(
            f"{path} is tuned on this machine; send a file to {settings.server} with POST "
            f"/v1/models"
        )
    extents, batch = _extents(shapes)
    command = CommandTime(seconds=loaded.model_seconds if batch is None else settings.seconds)
    library = name or library_name(path)
    check_library_name(library)
    chosen = checked_frameworks(frameworks, library)
    if directory is not None:
        check_replaceable(Path(directory))
    machine = checked_target(settings, on_devices=True)
    devices = device_lanes(settings, machine)
    values = {} if inputs is None else read_values(inputs)
    content = read_file(Path(path))
    graph = import_file(Path(path), _with(extents, batch), values, content=content)
    check_runnable(machine, settings, graph, several=batch is not None, frameworks=chosen)
    for line in _fixed_lines(graph):
        invocation.output.note(line)
    model = checked_import(
        Model(content=content, shapes=_with(extents, batch), graph=graph, values=values),
        command,
        invocation.output.note,
    )
    with (
        invocation.backend(create=True, **flags) as backend,
        invocation.database(create=True) as database,
    ):
        target = with_limits(database, machine, devices)
        family = _family(content, extents, batch, target, values)
        models = [model] if family is None else list(family.members.values())
        if directory is not None:
            models = command.with_chains(models, target)
        if family is not None:
            family = replace(family, members=dict(zip(family.members, models, strict=True)))
        exported = [] if directory is None else models
        seconds = command.tuning_s(exported)
        spare_s = command.spare_s(exported, seconds)
        job = submit_model(database, models, target, settings, seconds=seconds, spare_s=spare_s)
        with TuningDisplay(invocation.output.stderr, quiet=invocation.output.quiet) as display:
            if family is not None:
                display.note(
                    f"a model for each of {family.batch.name}={', '.join(map(str, family.members))}"
                )
            display.note(
                f"job {job.id}: {len(job.tasks)} kernels for "
                f"{sum(len(model.graph.nodes) for model in models)} calls"
            )
            for refusal in graph.refusals:
                display.note(f"left out, and an error where a call chooses it: {refusal}")
            display.whole(command.left_s)
            ended = backend.work.run(job.id, display)
        if directory is None or ended.state != "succeeded":
            conclude(invocation, backend, ended)
            return
        if display.gain is not None:
            invocation.output.note(gain_text(display.gain))
        tuned = _exported(
            database, models[0], family, target, settings, Path(directory), library, chosen, command
        )
        members = () if family is None else tuple(family.members)
        _report(invocation, models[-1], tuned, job.id, directory, library, members)


def _family(
    content: bytes,
    extents: InputShapes,
    batch: Batch | Listed | None,
    target: Target,
    values: InputValues,
) -> Family | None:
    """The models for several extents, where there are several."""
    from tuner.app.models.family import Listed, family_of, listed_family

    if batch is None:
        return None
    if isinstance(batch, Listed):
        return listed_family(content, extents, batch, values)
    return family_of(content, extents, batch, target, values)


def _with(extents: InputShapes, batch: Batch | Listed | None) -> InputShapes:
    """The extents, with the least of several."""
    return extents if batch is None else {**extents, batch.name: batch.low}


def _fixed(graph: Graph) -> dict[str, list[int | float | bool]]:
    """The inputs that are fixed, by the file's names, with their only values' elements."""
    labels = {tensor.name: label for tensor, label in zip(graph.inputs, graph.labels, strict=False)}
    return {labels[name]: array.reshape(-1).tolist() for name, array in graph.fixed.items()}


def _fixed_lines(graph: Graph) -> list[str]:
    """What the user is to know of inputs that are fixed, a line each."""
    lines = []
    for name, elements in _fixed(graph).items():
        text = " ".join(map(str, elements[:_SHOWN])) + (" …" if len(elements) > _SHOWN else "")
        lines.append(f"input {name} is fixed at {text}: its value decides shapes or a branch")
    return lines


def _exported(
    database: Database,
    model: Model,
    family: Family | None,
    target: Target,
    settings: Settings,
    directory: Path,
    library: str,
    frameworks: Sequence[str],
    command: CommandTime,
) -> TunedModel:
    """Exports a tuned model; the family of models where there is one."""
    from tuner.app.models.tuned_model import export_family, export_model
    from tuner.export.signature import KEY_FILE

    place = (target, settings, directory, library)
    more: dict[str, Any] = {
        "signing_key": settings.data_dir / KEY_FILE,
        "frameworks": frameworks,
        "command": command,
    }
    if family is not None:
        return export_family(database, family, *place, **more)
    return export_model(database, model, *place, **more)


def _extents(shapes: str) -> tuple[dict[str, int | tuple[int, ...]], Batch | Listed | None]:
    """The extents and whole shapes in `shapes`, and the one range or list. Raises UsageError."""
    from tuner.app.models.family import Batch, Listed
    from tuner.models.files.input_shapes import parse_shapes

    parts = [part.strip() for part in shapes.split(",") if part.strip()]
    ranged = [part for part in parts if ".." in part or "|" in part]
    extents = parse_shapes(",".join(part for part in parts if part not in ranged))
    if not ranged:
        return extents, None
    name, _, ends = (piece.strip() for piece in ranged[0].partition("="))
    separator = "|" if "|" in ends else ".."
    numbers = [piece.strip() for piece in ends.split(separator)]
    if (
        len(ranged) > 1
        or name in extents
        or not name
        or not all(re.fullmatch("[0-9]{1,18}", number) for number in numbers)
        or (separator == ".." and len(numbers) != 2)
    ):
        raise UsageError(
            f"--shapes has {ranged[-1]!r}; one extent of a model may be a range, such as "
            f"batch=1..8, or a list, such as words=32|64|128"
        )
    values = tuple(map(int, numbers))
    if separator == "|":
        return extents, Listed(name=name, extents=values)
    return extents, Batch(name=name, low=values[0], high=values[1])


def library_name(path: str) -> str:
    """The library's name: the file's name as an identifier."""
    stem = re.sub(r"[^a-z0-9_]+", "_", Path(path).name.removesuffix(SUFFIX).lower()).strip("_")[:48]
    return stem if stem[:1].isalpha() else f"model_{stem}".rstrip("_")


def _report(
    invocation: Invocation,
    model: Model,
    tuned: TunedModel,
    job: str,
    directory: str,
    name: str,
    members: tuple[int, ...],
) -> None:
    from tuner.models.workloads import workloads_of

    output = invocation.output
    if output.as_json:
        output.document(
            {
                "job": job,
                "model": {
                    "directory": directory,
                    "symbol": f"{name}_run",
                    "kernels": len(workloads_of(model.graph)),
                    "calls": len(model.graph.nodes),
                    "median_s": tuned.median_s,
                    "ci95_s": list(tuned.ci95_s),
                    "disturbed": disturbed(tuned.median_s, tuned.ci95_s),
                    "max_rel_error": tuned.max_rel_error,
                    "fixed": _fixed(model.graph),
                    "members": list(members),
                    "shares": [_share(share) for share in tuned.shares],
                    "numerics": tuned.numerics and tuned.numerics.document,
                    "chains": tuned.chains and tuned.chains.document,
                    "race": tuned.race and tuned.race.document,
                    "concurrency": tuned.concurrency and tuned.concurrency.document,
                },
            }
        )
        return
    whole_s = sum(share.total_s for share in tuned.shares)
    rows = [_row(share, whole_s) for share in tuned.shares]
    output.table(_COLUMNS, rows, right=_COLUMNS[1:])
    if tuned.numerics is not None:
        output.table(NUMERICS_COLUMNS, numerics_rows(tuned.numerics), right=NUMERICS_COLUMNS[1:])
        output.line(tuned.numerics.summary)
    if tuned.chains is not None:
        output.line(tuned.chains.summary)
    if tuned.race is not None:
        if tuned.race.changed:
            output.table(RACE_COLUMNS, race_rows(tuned.race), right=RACE_COLUMNS[1:])
        output.line(tuned.race.summary)
    if tuned.concurrency is not None:
        output.line(tuned.concurrency.summary)
    output.line(
        f"{directory}: {name}_run takes {units.seconds(tuned.median_s)}, error "
        f"{tuned.max_rel_error:.1e}"
    )


def _share(share: KernelShare) -> dict[str, Any]:
    """A kernel's share as JSON values."""
    return {
        "workload": share.workload.key,
        "name": share.workload.expression.name,
        "shapes": [list(tensor.shape) for tensor in share.workload.expression.inputs],
        "calls": share.calls,
        "inside_s": share.inside_s,
        "alone_s": share.alone_s,
        "numerics": share.workload.numerics,
        "gflops": share.gflops,
        "peak_fraction": share.peak_fraction,
    }


def _row(share: KernelShare, whole_s: float) -> tuple[str, ...]:
    """A kernel's share as a row of the table; `whole_s` is the time of all kernels."""
    shapes = " ".join(
        "×".join(map(str, tensor.shape)) for tensor in share.workload.expression.inputs[:2]
    )
    numerics = " fast" if share.workload.numerics == "fast" else ""
    return (
        f"{share.workload.expression.name} {shapes}{numerics}",
        str(share.calls),
        units.percent(share.total_s / whole_s),
        units.seconds(share.inside_s),
        units.seconds(share.alone_s),
        units.rate(share.gflops),
        units.percent(share.peak_fraction),
    )


def refuse_mixture(specs: list[str], others: Sequence[object]) -> str:
    """The one model that was given. Raises UsageError for others, and for anything that
    other workloads come from or are described by."""
    if len(specs) != 1 or any(given is not None for given in others):
        raise UsageError(
            "a model is tuned by itself; give one .onnx file, and no SPEC, --notation, --traffic "
            "or --trace"
        )
    return specs[0]

"""`tuner.tune_model`: from an ONNX file or a `torch.export` program to its library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tuner.app.devices import device_lanes
from tuner.app.jobs.lifecycle import run
from tuner.app.machine import checked_target, with_limits
from tuner.app.models.checked_import import checked_import
from tuner.app.models.command_time import CommandTime
from tuner.app.models.executors import check_runnable
from tuner.app.models.tuned_model import TunedModel, export_model, submit_model
from tuner.db import jobs
from tuner.db.engine import open_database
from tuner.errors import TunerError, UsageError
from tuner.export.directory import check_replaceable
from tuner.export.frameworks import checked_frameworks
from tuner.export.naming import check_library_name
from tuner.export.signature import KEY_FILE
from tuner.models.exported_program import is_exported_program, program_outputs, read_exported
from tuner.models.files.input_shapes import InputShapes
from tuner.models.files.input_values import InputValues
from tuner.models.graph import Graph
from tuner.models.graph_archive import packed
from tuner.models.importer import import_file, read_file
from tuner.models.passes.copies import with_a_kernel
from tuner.models.reference.evaluation import evaluate_outputs
from tuner.search.strategies import StrategyName
from tuner.settings import Settings, load_settings
from tuner.workers.jobs.model_library import Model
from tuner.workers.jobs.progress import Observer, WorkerNotice, unobserved
from tuner.workload.workload import ModelNumerics

Array = np.ndarray[Any, np.dtype[Any]]


class ModelNotTuned(TunerError):
    """The model's job ended without kernels for all of its parts."""

    code = "no_kernel"


def tune_model(
    source: Any,
    directory: str | Path,
    *,
    name: str = "model",
    frameworks: str = "c",
    shapes: InputShapes | None = None,
    inputs: InputValues | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    threads: int | None = None,
    target: str | None = None,
    strategy: StrategyName | None = None,
    seed: int | None = None,
    numerics: ModelNumerics | None = None,
    max_error: float | None = None,
    db: str | None = None,
    observer: Observer = unobserved,
) -> TunedModel:
    """Tunes a model in this process and writes its library into `directory`.

    The library is called `name` and has the function `<name>_run`. `frameworks` names what
    it is for, with commas: c, torch, jax, onnxruntime.

    `source` is the path of an .onnx file, whose inputs' named extents `shapes` gives, a
    `torch.export.ExportedProgram`, or a graph of `tuner.grad_model`. `inputs` gives values of
    a file's inputs by name; an input whose value decides shapes or a branch is fixed at it.
    The library's outputs are compared with those of ONNX's reference evaluator, of the
    program itself, or of the graph's expressions in float64. What is None comes from the
    settings; `trials` are for each kernel on average, `seconds` for the whole call (270 by
    themselves).

    `max_error`, between 0 and 1, bounds the error of an output, relative to its greatest
    value. It lets kernels have fast numerics where the outputs stay within, unless
    `numerics` is "strict". `numerics="fast"` alone keeps the usual bound.

    `target` is what `--target` takes: "cuda" makes a library for this machine's GPU.

    Raises UsageError, ModelRefused and NotImported before anything is written;
    ModelNotTuned, ModelWrong, DatabaseError.
    """
    given = {
        "trials": trials,
        "seconds": seconds,
        "threads": threads,
        "target": target,
        "strategy": strategy,
        "seed": seed,
        "numerics": numerics,
        "max_error": max_error,
        "db": db,
    }
    loaded = load_settings(given, given_as="argument {}")
    settings, command = loaded.values, CommandTime(seconds=loaded.model_seconds)
    check_library_name(name)
    chosen = checked_frameworks(frameworks, name)
    check_replaceable(Path(directory))
    model = _read(
        source,
        shapes or {},
        inputs or {},
        command,
        lambda text: observer(WorkerNotice(message=text)),
    )
    return _tuned(model, Path(directory), name, chosen, settings, command, observer)


def _read(
    source: Any,
    shapes: InputShapes,
    values: InputValues,
    command: CommandTime,
    note: Callable[[str], object],
) -> Model:
    """The model in a file or a program, which is checked where it is of a file.

    Raises UsageError, ModelRefused, ModelWrong, NotImported.
    """
    if isinstance(source, str | Path):
        content = read_file(Path(source))
        graph = import_file(Path(source), shapes, values, content=content)
        model = Model(content=content, shapes=shapes, graph=graph, values=values)
        return checked_import(model, command, note)
    is_graph = isinstance(source, Graph)
    if not is_graph and not is_exported_program(source):
        kind = f"{type(source).__module__}.{type(source).__qualname__}"
        raise UsageError(
            f"a {kind} is no model; give the path of an .onnx file, a "
            f"torch.export.ExportedProgram, or what tuner.grad_model gave"
        )
    if shapes or values:
        raise UsageError(
            f"shapes {dict(shapes)} and inputs {[*values]} belong to an .onnx file; export the "
            f"program with the extents it is to have"
        )
    graph = with_a_kernel(source if is_graph else read_exported(source))
    of_program = partial(program_outputs, source, graph)
    evaluate = partial(evaluate_outputs, graph) if is_graph else of_program
    return Model(content=packed(graph), shapes={}, graph=graph, evaluate=evaluate)


def _tuned(
    model: Model,
    directory: Path,
    name: str,
    frameworks: Sequence[str],
    settings: Settings,
    command: CommandTime,
    observer: Observer,
) -> TunedModel:
    machine = checked_target(settings, on_devices=True)
    devices = device_lanes(settings, machine)
    check_runnable(machine, settings, model.graph, frameworks=frameworks)
    database = open_database(settings.db)
    try:
        target = with_limits(database, machine, devices)
        (model,) = command.with_chains([model], target)
        seconds = command.tuning_s([model])
        spare_s = command.spare_s([model], seconds)
        job = submit_model(database, [model], target, settings, seconds=seconds, spare_s=spare_s)
        report = run(database, job.id, settings, observer=observer)
        if report.job.state != jobs.SUCCEEDED:
            raise ModelNotTuned(f"job {job.id} of the model {report.job.state}: {report.job.error}")
        return export_model(
            database,
            model,
            target,
            settings,
            directory,
            name,
            signing_key=settings.data_dir / KEY_FILE,
            frameworks=frameworks,
            command=command,
        )
    finally:
        database.close()

"""`tuner tune`, `submit`, `watch` and `resume`: jobs from their request to their kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import documents
from tuner.cli.exits import Exit
from tuner.cli.idle import measure_figures
from tuner.cli.invocation import Invocation
from tuner.cli.jobs import JobName
from tuner.cli.models import is_model, refuse_mixture, tune_model
from tuner.cli.results import conclude
from tuner.cli.scaling import AUTO, tune_scaling
from tuner.cli.trace import tune_trace
from tuner.cli.workloads import (
    CacheText,
    DeviceCommands,
    Notation,
    ObjectiveText,
    Shapes,
    Specs,
    TargetText,
    Threads,
    Traffic,
    check_devices,
    device_setting,
    families_of,
    read_workloads,
)
from tuner.errors import UsageError
from tuner.measure.cache import refuse_cold
from tuner.measure.objective import refuse_beside_work, refuse_goal
from tuner.search.strategies import strategy_choices

if TYPE_CHECKING:
    from tuner.api.schemas import JobAnswer
    from tuner.cli.backend.roles import Backend, JobRequest

Trials = Annotated[
    int | None,
    typer.Option("--trials", metavar="N", help="trials for each workload, trial 0 among them"),
]
Seconds = Annotated[
    float | None, typer.Option("--seconds", metavar="S", help="seconds for each workload, at most")
]
StrategyText = Annotated[
    str | None,
    typer.Option("--strategy", metavar="NAME", help=strategy_choices()),
]
Directory = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="DIR", help="of a model: where its library goes"),
]
ModelName = Annotated[
    str | None, typer.Option("--name", metavar="LIB", help="of a model: its library's name")
]
Frameworks = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="FRAMEWORKS",
        help="of a model: what its library is for besides C: torch, jax, onnxruntime",
    ),
]
Inputs = Annotated[
    Path | None,
    typer.Option("--inputs", metavar="FILE.npz", help="of a model: values of inputs, by name"),
]
NumericsText = Annotated[
    str | None,
    typer.Option(
        "--numerics",
        metavar="strict|fast|tensor",
        help="of --notation, or of a model: what its kernels' numbers may be",
    ),
]
MaxError = Annotated[
    float | None,
    typer.Option(
        "--max-error", metavar="E", help="of a model: greatest error of an output, such as 1e-3"
    ),
]
ThreadsOrAuto = Annotated[
    str | None,
    typer.Option(
        "--threads", metavar="N|auto", help="threads of the kernel; auto compares several counts"
    ),
]
TraceFile = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="the calls that tuner trace recorded, as one job"),
]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="seed of everything random")]


def tune(
    context: typer.Context,
    specs: Specs = None,
    notation: Notation = None,
    shapes: Shapes = None,
    trials: Trials = None,
    seconds: Seconds = None,
    strategy: StrategyText = None,
    target: TargetText = None,
    threads: ThreadsOrAuto = None,
    seed: Seed = None,
    directory: Directory = None,
    name: ModelName = None,
    frameworks: Frameworks = None,
    inputs: Inputs = None,
    numerics: NumericsText = None,
    max_error: MaxError = None,
    traffic: Traffic = None,
    trace: TraceFile = None,
    device: DeviceCommands = None,
    cache: CacheText = None,
    objective: ObjectiveText = None,
) -> None:
    """Tunes each workload and stores its verified winner; budgets count for each.
    Ctrl-C stops cleanly, and resume continues."""
    invocation = Invocation.of(context)
    flags = {
        "trials": trials,
        "seconds": seconds,
        "strategy": strategy,
        "target": target,
        "threads": _threads(threads),
        "seed": seed,
        "device": device_setting(device),
        "cache": cache,
        "objective": objective,
    }
    settings = invocation.settings(**flags).values
    check_devices(device, settings.target)
    if any(is_model(spec) for spec in specs or ()):
        model = refuse_mixture(specs or [], (notation, traffic, trace))
        if threads == AUTO:
            raise UsageError("--threads auto is for single workloads; give a model --threads N")
        flags |= {"numerics": numerics, "max_error": max_error}
        tune_model(
            invocation,
            model,
            shapes=shapes or "",
            inputs=inputs,
            directory=directory,
            name=name,
            frameworks=frameworks or "c",
            flags=flags,
        )
        return
    if max_error is not None or (numerics is not None and notation is None):
        raise UsageError(
            "--numerics is for --notation and for models, --max-error for models; of another "
            "workload the numerics stand in its spec, such as "
            "matmul:M=512,N=512,K=512,numerics=fast"
        )
    if any(flag is not None for flag in (directory, name, frameworks, inputs)):
        raise UsageError(
            "--output, --name, --for and --inputs are for models; tuner export writes the library "
            "of other workloads"
        )
    if trace is not None:
        if specs or notation is not None or shapes is not None or traffic is not None:
            raise UsageError(f"--trace {trace} is tuned by itself; give no other workload")
        if threads == AUTO:
            raise UsageError(f"--threads auto compares counts of workloads, not of --trace {trace}")
        tune_trace(invocation, trace, flags)
        return
    request = _request(
        specs, notation, shapes, improve=True, priority=0, traffic=traffic, numerics=numerics
    )
    if request.families:
        refuse_cold(settings.cache, "a range becomes one function of kernels that were timed warm")
        refuse_goal(settings.goal, "a range becomes one function of the fastest kernels")
    if threads == AUTO or (threads is None and settings.goal.any_threads):
        refuse_cold(settings.cache, "--threads auto compares counts with warm caches")
        del flags["threads"]
        tune_scaling(invocation, request, run_to_end, flags)
        return
    with invocation.backend(create=True, **flags) as backend:
        _run(invocation, backend, backend.work.submit(request))


def submit(
    context: typer.Context,
    specs: Specs = None,
    notation: Notation = None,
    shapes: Shapes = None,
    trials: Trials = None,
    seconds: Seconds = None,
    strategy: StrategyText = None,
    target: TargetText = None,
    threads: Threads = None,
    seed: Seed = None,
    priority: Annotated[
        int, typer.Option("--priority", metavar="N", min=-100, max=100, help="higher goes first")
    ] = 0,
    improve: Annotated[
        bool, typer.Option("--improve", help="tune also what has a kernel already")
    ] = False,
    cache: CacheText = None,
    objective: ObjectiveText = None,
) -> None:
    """Queues a job and prints its id, without waiting: tuner serve tunes it, tuner
    watch follows it."""
    invocation = Invocation.of(context)
    request = _request(specs, notation, shapes, improve=improve, priority=priority)
    flags = {
        "trials": trials,
        "seconds": seconds,
        "strategy": strategy,
        "target": target,
        "threads": threads,
        "seed": seed,
        "cache": cache,
        "objective": objective,
    }
    refuse_beside_work(invocation.settings(**flags).values.goal)
    with invocation.backend(create=True, **flags) as backend:
        job = backend.work.submit(request)
    if invocation.output.as_json:
        invocation.output.document(documents.job(job))
        return
    invocation.output.line(job.id)
    invocation.output.note(f"{job.state}; tuner watch {job.id} follows it")


def watch(context: typer.Context, job: JobName) -> None:
    """Follows a job from its first event to its last, through dropped connections, and
    prints its results. Ctrl-C only leaves."""
    from tuner.cli.follow import follow
    from tuner.cli.progress import TuningDisplay

    invocation = Invocation.of(context)
    output = invocation.output
    with invocation.backend() as backend:
        watched = backend.jobs.get(job)
        try:
            with TuningDisplay(output.stderr, quiet=output.quiet) as display:
                display.note(f"job {watched.id}")
                ended = follow(backend.jobs, watched.id, display)
        except KeyboardInterrupt:
            output.note(f"job {watched.id} goes on; tuner cancel {watched.id} ends it")
            raise typer.Exit(Exit.INTERRUPTED) from None
        conclude(invocation, backend, ended)


def resume(
    context: typer.Context,
    job: JobName,
    trials: Trials = None,
    seconds: Seconds = None,
    device: DeviceCommands = None,
) -> None:
    """Continues a cancelled, failed or killed job after its recorded trials, none of
    which is lost or measured again."""
    invocation = Invocation.of(context)
    commands = device_setting(device)
    with invocation.backend(trials=trials, seconds=seconds, device=commands) as backend:
        _run(invocation, backend, backend.work.resume(job, trials=trials, seconds=seconds))


def _threads(text: str | None) -> int | None:
    """The number; None where none is given, or AUTO. Raises UsageError for anything else."""
    if text is None or text == AUTO:
        return None
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"threads is {text!r}; give a number, or {AUTO}") from None


def _request(
    specs: Specs,
    notation: str | None,
    shapes: str | None,
    *,
    improve: bool,
    priority: int,
    traffic: Path | None = None,
    numerics: str | None = None,
) -> JobRequest:
    """The request, checked as far as possible without a machine."""
    from tuner.cli.backend.roles import JobRequest
    from tuner.workload.pattern_files import spec_with_file

    specs = [spec_with_file(spec) for spec in specs or ()]  # whose paths may have dots
    families = families_of([spec for spec in specs if ".." in spec], traffic)
    single = [spec for spec in specs if ".." not in spec]
    workloads = (
        read_workloads(single, notation, shapes, numerics or "strict")
        if single or notation or shapes or not families
        else []
    )
    if families:
        from tuner.app.export.portfolio import rows_checked

        for family in families:
            rows_checked(family)
    return JobRequest(
        workloads=tuple(workloads), families=families, priority=priority, improve=improve
    )


def _run(invocation: Invocation, backend: Backend, job: JobAnswer) -> None:
    """Runs a queued job to its end with a live display, and prints its results."""
    ended = run_to_end(invocation, backend, job)
    if ended.state == "succeeded":
        measure_figures(invocation, ended)
    conclude(invocation, backend, ended)


def run_to_end(invocation: Invocation, backend: Backend, job: JobAnswer) -> JobAnswer:
    """Runs a queued job with a live display; returns it when it has ended."""
    from tuner.cli.progress import TuningDisplay

    output = invocation.output
    with TuningDisplay(output.stderr, quiet=output.quiet) as display:
        display.note(f"job {job.id}")
        return backend.work.run(job.id, display)

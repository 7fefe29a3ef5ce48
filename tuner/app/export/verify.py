"""An exported directory put to the test on this machine, its CPU or its GPU: hashes,
manifest, instruction set, right answers, time.

Nothing of it runs before every listed file has its hash, and then only in a runner's
child, from a private copy of the library.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np

from tuner.app.export.portfolio import portfolio_key, rows_checked, spec_of
from tuner.app.export.verify_model import checked_model, is_model
from tuner.app.kernels.race import PLAN
from tuner.errors import TunerError, UsageError, WorkloadError
from tuner.export.directory import unlisted_files
from tuner.export.errors import ManifestError
from tuner.export.manifest import Manifest, open_regular, verify_hashes
from tuner.measure.assignment import Assignment
from tuner.measure.gpu.check import Subject
from tuner.measure.gpu.runner import FreshProcesses, GpuRunner
from tuner.measure.gpu.sanitizer import SanitizerError, find_sanitizer
from tuner.measure.gpu.sanitizer import sanitize as sanitize_kernel
from tuner.measure.race import Contender, Runs, race
from tuner.measure.runner import RunnerOptions, RunnerProcess
from tuner.measure.statistics import MIN_ROUNDS, race_median_ci95
from tuner.runtime.cuda_driver import CudaError, NoDriver
from tuner.settings import Settings
from tuner.target.architectures.table import detectable_features
from tuner.target.detect import detect_cpu, detect_gpu
from tuner.target.target import Target
from tuner.workers.fleet.machine import plan_machine, usable_nodes
from tuner.workload.rows import member
from tuner.workload.spec import (
    Portfolio,
    to_document,
    workload_from_expression,
    workload_from_notation,
    workload_from_params,
)
from tuner.workload.tree import expression_from
from tuner.workload.workload import Numerics, Workload

Runner = RunnerProcess | GpuRunner
SUBJECT = "kernel"
# Features that a machine is known to have or lack; of others the library knows itself.
DETECTED = detectable_features()
MEMBERS_BETWEEN = 3  # of a portfolio, tried besides its least and its greatest


class VerificationError(TunerError):
    """A function of an exported library that cannot run here or gives a wrong answer."""

    code = "verification"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retimed:
    """A function that gave right answers on unseen inputs, with its time here."""

    max_rel_error: float
    median_s: float
    ci95_s: tuple[float, float]
    ratio: float | None  # of this median to the manifest's; None where that one is 0
    threads: int  # it ran with: those it was tuned for, or as many as this machine has
    sanitized: tuple[str, ...] = ()  # tools of compute-sanitizer that found nothing
    # Seconds of a call by the level of CPU it is compiled for besides, where this
    # machine can try it.
    variants: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionVerdict:
    symbol: str
    spec: str  # of its workload; the symbol again where that could not be read
    manifest_median_s: float
    same_target: bool  # tuned for this very machine, so that the two times may be compared
    result: Retimed | VerificationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    manifest: Manifest
    machine: Target
    seed: int  # of the inputs
    functions: tuple[FunctionVerdict, ...]
    unlisted: tuple[str, ...]  # files in the directory that the manifest does not vouch for

    @property
    def ok(self) -> bool:
        return all(isinstance(verdict.result, Retimed) for verdict in self.functions)

    @property
    def slower_percent(self) -> float:
        """By how many percent a function tuned for this machine takes longer than its
        manifest says, the worst of them."""
        ratios = (
            verdict.result.ratio
            for verdict in self.functions
            if verdict.same_target and isinstance(verdict.result, Retimed)
        )
        return max((100.0 * (ratio - 1.0) for ratio in ratios if ratio is not None), default=0.0)


def verify_export(
    directory: Path,
    settings: Settings,
    *,
    seed: int | None = None,
    public_key: str | None = None,
    sanitize: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Checks everything; inputs are of a fresh seed unless one is given. Writes nothing
    but its own temporary folder.

    With `public_key` (as `ed25519:HEX`) the manifest must be signed by that key.
    `sanitize` names tools of compute-sanitizer under which each function that is right
    runs once more; UsageError where they are not of GPUs, and where there is no such
    program.

    Raises ManifestError for a directory that is no export or was altered, before
    anything of it runs; a function that fails is a verdict. `progress` is told what
    runs: each function's symbol.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory} is no directory; name one that tuner export wrote")
    manifest = verify_hashes(directory, public_key=public_key)
    chosen = secrets.randbelow(1 << 31) if seed is None else seed
    sanitizer = _sanitizer_for(manifest) if sanitize else None
    machine = _machine_for(manifest)
    verdicts = []
    with (
        tempfile.TemporaryDirectory(prefix="tuner-verify-") as folder,
        _runner_for(machine) as runner,
    ):
        library = _private_copy(directory, manifest, Path(folder))
        for function in manifest.functions:
            if progress is not None:
                progress(function["symbol"])
            if is_model(function):
                verdicts.append(
                    _model_verdict(function, directory, manifest, library, machine, settings)
                )
                continue
            verdict = _verdict(function, library, runner, machine, settings, chosen)
            for tool in sanitize:
                if sanitizer is None or not isinstance(verdict.result, Retimed):
                    break
                if progress is not None:
                    progress(f"{function['symbol']} under compute-sanitizer's {tool}")
                result = _sanitized(verdict.result, function, library, chosen, tool, sanitizer)
                verdict = replace(verdict, result=result)
            verdicts.append(verdict)
    return Verification(
        manifest=manifest,
        machine=machine,
        seed=chosen,
        functions=tuple(verdicts),
        unlisted=tuple(unlisted_files(directory, manifest)),
    )


def _machine_for(manifest: Manifest) -> Target:
    """What its functions run on here. Raises VerificationError for those of GPUs where
    there is none."""
    if not any(function["target"].get("kind") == "cuda" for function in manifest.functions):
        return detect_cpu()
    try:
        return detect_gpu()
    except (NoDriver, CudaError) as error:
        raise VerificationError(f"{manifest.name} is for GPUs, and {error}") from error


def _sanitizer_for(manifest: Manifest) -> Path:
    if not all(function["target"].get("kind") == "cuda" for function in manifest.functions):
        raise UsageError(
            f"{manifest.name} is for CPUs; compute-sanitizer looks at kernels for GPUs: leave "
            f"--sanitize out"
        )
    return find_sanitizer()


def _sanitized(
    retimed: Retimed,
    function: Mapping[str, Any],
    library: Path,
    seed: int,
    tool: str,
    sanitizer: Path,
) -> Retimed | VerificationError:
    """What was right so far, once the tool has looked at it too."""
    symbol = function["symbol"]
    subject = Subject(
        workload=to_document(workload_of(function)), seed=seed, library=str(library), symbol=symbol
    )
    try:
        sanitize_kernel(tool, subject, sanitizer=sanitizer)
    except SanitizerError as error:
        return VerificationError(f"{symbol}: {error}")
    return replace(retimed, sanitized=(*retimed.sanitized, tool))


def _runner_for(machine: Target) -> Runner:
    return GpuRunner() if machine.on_device else RunnerProcess()


def workload_of(function: Mapping[str, Any]) -> Workload:
    """The workload a function's entry in the manifest describes, held against its key
    and its arguments.

    Raises WorkloadError for one that is none, ManifestError where key or arguments are of another.
    """
    stated = function["workload"]
    constants, numerics = _texts(stated.get("constants", [])), str(stated.get("numerics", "strict"))
    if isinstance(stated.get("op"), str):
        workload = workload_from_params(
            stated["op"],
            _object(stated, "params", bool | int | float | str),
            constants=constants,
            numerics=numerics,
        )
    elif isinstance(stated.get("notation"), str):
        shapes = {name: int(extent) for name, extent in _object(stated, "shapes", int).items()}
        workload = workload_from_notation(stated["notation"], shapes, constants, numerics)
    elif isinstance(stated.get("expression"), dict):
        workload = workload_from_expression(
            expression_from(stated["expression"]), constants, numerics
        )
    else:
        raise ManifestError(
            f"{function['symbol']}: its workload has neither an operator nor a notation nor an "
            f"expression"
        )
    if workload.key != stated.get("key"):
        raise ManifestError(
            f"{function['symbol']}: its workload's key is {workload.key}, the manifest says "
            f"otherwise"
        )
    _check_arguments(function, workload)
    return workload


def _check_arguments(function: Mapping[str, Any], workload: Workload) -> None:
    expression = workload.expression
    outputs = (expression.tensor(name) for name in expression.outputs)
    expected = [
        (tensor.name, tensor.dtype, list(tensor.shape), "in") for tensor in expression.inputs
    ]
    expected += [(tensor.name, tensor.dtype, list(tensor.shape), "out") for tensor in outputs]
    if expected != [
        (argument["name"], argument["dtype"], argument["shape"], argument["role"])
        for argument in function["arguments"]
    ]:
        raise ManifestError(f"{function['symbol']}: its arguments are not those of its workload")


def portfolio_of(function: Mapping[str, Any]) -> Portfolio:
    """The family that a function with a range describes, held against its key and its
    arguments. Raises as `workload_of`."""
    stated, ranges = function["workload"], function["ranges"]
    if not isinstance(ranges, dict) or len(ranges) != 1 or not isinstance(stated.get("op"), str):
        raise ManifestError(
            f"{function['symbol']}: a function with a range has one range and an operator"
        )
    ((name, ends),) = ranges.items()
    low, high = (
        (ends.get(end) for end in ("least", "greatest")) if isinstance(ends, dict) else (None, None)
    )
    if type(low) is not int or type(high) is not int or not 1 <= low < high:
        raise ManifestError(f"{function['symbol']}: the range of {name!r} has no ends")
    params = {
        key: value
        for key, value in _object(stated, "params", bool | int | float | str).items()
        if key != name
    }
    numerics: Numerics = "fast" if stated.get("numerics") == "fast" else "strict"
    family = Portfolio(
        op=stated["op"],
        params=params,
        ranges={name: (low, high)},
        constants=_texts(stated.get("constants", [])),
        numerics=numerics,
    )
    rows_checked(family)
    if portfolio_key(family) != stated.get("key"):
        raise ManifestError(
            f"{function['symbol']}: its family's key is {portfolio_key(family)}, the manifest "
            f"says otherwise"
        )
    _check_arguments(function, member(family, high))
    return family


def _retimed_family(
    function: Mapping[str, Any],
    family: Portfolio,
    library: Path,
    *,
    runner: Runner,
    settings: Settings,
    seed: int,
) -> Retimed:
    """Members at both ends and in between, each checked as a workload of its own; the
    greatest one's time."""
    ((low, high),) = family.ranges.values()
    between = np.random.default_rng(seed).integers(low, high + 1, size=MEMBERS_BETWEEN)
    results = [
        _retimed(
            function, member(family, extent), library, runner=runner, settings=settings, seed=seed
        )
        for extent in sorted({low, *(int(extent) for extent in between), high})
    ]
    return replace(results[-1], max_rel_error=max(result.max_rel_error for result in results))


def _private_copy(directory: Path, manifest: Manifest, folder: Path) -> Path:
    """The library where nobody can exchange it between its check and its use. Raises
    ManifestError when somebody did."""
    copy = folder / Path(manifest.library).name
    with open_regular(directory / manifest.library) as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target)
    if sha256(copy.read_bytes()).hexdigest() != manifest.files[manifest.library]:
        raise ManifestError(
            f"{directory / manifest.library} was changed while it was being verified"
        )
    return copy


def _verdict(
    function: Mapping[str, Any],
    library: Path,
    runner: Runner,
    machine: Target,
    settings: Settings,
    seed: int,
) -> FunctionVerdict:
    spec = function["symbol"]
    result: Retimed | VerificationError
    try:
        _check_machine(function, machine)
        if "ranges" in function:
            family = portfolio_of(function)
            spec = spec_of(family)
            retime = partial(
                _retimed_family, function, family, library, settings=settings, seed=seed
            )
        else:
            workload = workload_of(function)
            spec = workload.spec
            retime = partial(_retimed, function, workload, library, settings=settings, seed=seed)
        result = _with_variants(retime(runner=runner), function, machine, retime)
    except VerificationError as error:
        result = error
    except TunerError as error:
        result = VerificationError(f"{function['symbol']}: {error}")
    return FunctionVerdict(
        symbol=function["symbol"],
        spec=spec,
        manifest_median_s=float(function["median_s"]),
        same_target=function["target"].get("key") == machine.key,
        result=result,
    )


def _model_verdict(
    function: Mapping[str, Any],
    directory: Path,
    manifest: Manifest,
    library: Path,
    machine: Target,
    settings: Settings,
) -> FunctionVerdict:
    """Of a whole model, whose inputs are those of the examples."""
    result: Retimed | VerificationError
    try:
        _check_machine(function, machine)
        nodes = usable_nodes()
        threads = min(int(function["threads"]), sum(len(node) for node in nodes))
        lane = plan_machine(nodes, threads=threads, declared=settings.lanes).lanes[0]
        error, run = checked_model(function, directory, manifest, library, lane.cores)
        stated = float(function["median_s"])
        ratio = run.median_s / stated if stated > 0 else None
        result = Retimed(
            max_rel_error=error,
            median_s=run.median_s,
            ci95_s=run.ci95_s,
            ratio=ratio,
            threads=threads,
        )
    except TunerError as failure:
        result = VerificationError(f"{function['symbol']}: {failure}")
    return FunctionVerdict(
        symbol=function["symbol"],
        spec="model",
        manifest_median_s=float(function["median_s"]),
        same_target=function["target"].get("key") == machine.key,
        result=result,
    )


def _with_variants(
    retimed: Retimed, function: Mapping[str, Any], machine: Target, retime: Callable[..., Retimed]
) -> Retimed:
    """The same with each of its variants run too, by hiding from the library what the
    ones before it want."""
    variants, times, worst = function.get("variants", []), {}, retimed.max_rel_error
    for place, variant in enumerate(variants[1:], start=1):
        hidden = {feature for earlier in variants[:place] for feature in earlier["isa"]} - set(
            variant["isa"]
        )
        if set(variant["isa"]) & DETECTED <= set(machine.isa):
            with RunnerProcess(RunnerOptions(cpu_without=tuple(sorted(hidden)))) as runner:
                lesser = retime(runner=runner)
            times[variant["name"]], worst = lesser.median_s, max(worst, lesser.max_rel_error)
    return replace(retimed, max_rel_error=worst, variants=times)


def _check_machine(function: Mapping[str, Any], machine: Target) -> None:
    kind = function["target"].get("kind")
    if kind != machine.kind:
        raise VerificationError(
            f"{function['symbol']} is for a target of kind {kind!r}; this machine's is "
            f"{machine.kind}"
        )
    missing = sorted(set(function["isa"]) & DETECTED - set(machine.isa))
    if missing:
        raise VerificationError(
            f"{function['symbol']} needs {', '.join(missing)}, which this CPU lacks; tune it "
            f"here, or run it where it was tuned"
        )


def _retimed(
    function: Mapping[str, Any],
    workload: Workload,
    library: Path,
    *,
    runner: Runner,
    settings: Settings,
    seed: int,
) -> Retimed:
    runs, threads = _prepared(function, workload, runner, settings, seed)
    contender = Contender(
        name=SUBJECT,
        library=str(library),
        symbol=function["symbol"],
        timeout_s=settings.run_timeout_s,
    )
    result = race([contender], runs, rounds=MIN_ROUNDS, plan=PLAN)
    if SUBJECT in result.failed:
        failure = result.failed[SUBJECT]
        raise VerificationError(f"{function['symbol']} failed: {failure.kind}: {failure.message}")
    median_s, ci95_s = race_median_ci95(result.rounds[SUBJECT])
    stated = float(function["median_s"])
    return Retimed(
        max_rel_error=result.max_rel_error[SUBJECT],
        median_s=median_s,
        ci95_s=ci95_s,
        ratio=median_s / stated if stated > 0 else None,
        threads=threads,
    )


def _prepared(
    function: Mapping[str, Any], workload: Workload, runner: Runner, settings: Settings, seed: int
) -> tuple[Runs, int]:
    """The runner with the workload, and how many threads the function gets."""
    if isinstance(runner, GpuRunner):
        runner.prepare(workload, seed)
        return FreshProcesses(runner), int(function["threads"])
    nodes = usable_nodes()
    threads = min(int(function["threads"]), sum(len(node) for node in nodes))
    lane = plan_machine(nodes, threads=threads, declared=settings.lanes).lanes[0]
    runner.prepare(Assignment(workload=workload, lane=lane, threads=threads, seed=seed))
    return runner, threads


def _object(stated: Mapping[str, Any], name: str, kind: type | UnionType) -> Mapping[str, Any]:
    values = stated.get(name)
    if not isinstance(values, dict) or not all(
        isinstance(value, kind) for value in values.values()
    ):
        raise WorkloadError(f"{name} must be an object of plain values", parameter=name)
    return values


def _texts(names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise WorkloadError("constants must be a list of names", parameter="const")
    return tuple(names)

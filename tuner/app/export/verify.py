"""Verifies an exported directory on this machine: hashes, answers and times.

Nothing of it runs before all listed files have their hashes. Functions run in a runner's
child process, from a private copy of the library.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tuner.app.export.manifest_workloads import portfolio_of, workload_of
from tuner.app.export.portfolio import spec_of
from tuner.app.export.verdicts import FunctionVerdict, LibraryVerdict, Retimed, VerificationError
from tuner.app.export.verify_model import checked_model, is_model
from tuner.app.machine import usable_threads
from tuner.app.platforms.cpu import cpu_runner
from tuner.app.platforms.device import DevicePlatform
from tuner.app.platforms.platform import Platform, WorkloadRunner
from tuner.app.platforms.table import HOST, PLATFORMS
from tuner.app.races.race import PLAN
from tuner.errors import TunerError, UsageError
from tuner.export.directory import unlisted_files
from tuner.export.errors import ManifestError
from tuner.export.manifest import Manifest, open_regular, verify_hashes
from tuner.measure.gpu.check import Subject
from tuner.measure.gpu.sanitizer import SanitizerError
from tuner.measure.gpu.sanitizer import sanitize as sanitize_kernel
from tuner.measure.race import Contender, race
from tuner.measure.statistics import MIN_ROUNDS, race_median_ci95
from tuner.runtime.cuda_driver import CudaError, NoDriver
from tuner.scratch import temporary_folder
from tuner.settings import Settings
from tuner.target.architectures.table import detectable_features
from tuner.target.detect import declared_targets
from tuner.target.target import Target
from tuner.workload.rows import member
from tuner.workload.spec import Portfolio, to_document
from tuner.workload.workload import Workload

SUBJECT = "kernel"  # name of the function in its race
# Features that can be detected. Of others the library itself decides whether it can run.
DETECTED = detectable_features()
MEMBERS_BETWEEN = 3  # of a portfolio, tried besides its least and its greatest


def verify_export(
    directory: Path,
    settings: Settings,
    *,
    seed: int | None = None,
    public_key: str | None = None,
    sanitize: Sequence[str] = (),
    on_device: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> LibraryVerdict:
    """Verifies all functions of an exported directory.

    Inputs are made from a fresh seed unless one is given. With `public_key` (as
    `ed25519:HEX`) the manifest must be signed by that key. `sanitize` names tools of
    compute-sanitizer, under which each function that is right runs once more.
    `progress` gets the name of what runs.

    Where the settings name a device, and all functions are for the declared CPU that it
    is, they run there. With `on_device` they must be.

    Writes only to a temporary folder. A function that fails is a verdict. Raises
    ManifestError for a directory that is no export or was altered, before anything of it
    runs; UsageError where `sanitize` is given for CPUs, or the program is missing, for a
    module of WebAssembly, and for a device of another kind; DeviceError for one that cannot
    be reached.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory} is no directory; name one that tuner export wrote")
    manifest = verify_hashes(directory, public_key=public_key)
    if manifest.library == f"{manifest.name}.wasm":
        raise UsageError(
            f"{manifest.name} is a module of WebAssembly, whose hashes are right and which no "
            f"machine runs by itself; its example checks it: node {directory}/examples/example.mjs"
        )
    chosen_seed = secrets.randbelow(1 << 31) if seed is None else seed
    sanitizer = _sanitizer(manifest) if sanitize else None
    platform: Platform | None = _device(manifest, settings, required=on_device)
    platform = platform or _platform(manifest)
    machine = _detected(platform, manifest)
    verdicts = []
    with (
        temporary_folder("tuner-scratch-verify-") as folder,
        platform.runner(machine, settings) as runner,
    ):
        verifier = _Verifier(
            directory=directory,
            manifest=manifest,
            library=_private_copy(directory, manifest, folder),
            platform=platform,
            runner=runner,
            machine=machine,
            settings=settings,
            seed=chosen_seed,
        )
        for function in manifest.functions:
            progress(function["symbol"])
            if is_model(function):
                verdicts.append(verifier.model_verdict(function))
                continue
            verdict = verifier.verdict(function)
            for tool in sanitize:
                if sanitizer is None or not isinstance(verdict.result, Retimed):
                    break
                progress(f"{function['symbol']} under compute-sanitizer's {tool}")
                result = verifier.sanitized(verdict.result, function, tool, sanitizer)
                verdict = replace(verdict, result=result)
            verdicts.append(verdict)
    return LibraryVerdict(
        manifest=manifest,
        machine=machine,
        seed=chosen_seed,
        functions=tuple(verdicts),
        unlisted=tuple(unlisted_files(directory, manifest)),
    )


def _kinds(manifest: Manifest) -> set[str]:
    """The kinds of target of its functions, as far as there is a platform for them."""
    kinds = {str(function["target"].get("kind")) for function in manifest.functions}
    return kinds & PLATFORMS.keys()


def _platform(manifest: Manifest) -> Platform:
    """The platform that its functions run on; that of CPUs where no other is named."""
    kinds = _kinds(manifest)
    return next((platform for kind, platform in PLATFORMS.items() if kind in kinds), HOST)


def _device(manifest: Manifest, settings: Settings, *, required: bool) -> DevicePlatform | None:
    """The settings' device, as the declared CPU that all functions are for.

    None without a device, and where they are for several, or for none. Raises UsageError
    for that if a device is `required`.
    """
    if not settings.device:
        return None
    names = sorted({str(function["target"].get("name")) for function in manifest.functions})
    declared = {target.name: target for target in declared_targets(settings.microarchitectures)}
    if len(names) != 1 or names[0] not in declared:
        if not required:
            return None
        raise UsageError(
            f"{manifest.name} is for {', '.join(names)}; a device runs functions for one declared "
            f"CPU, such as cpu:neoverse-n1"
        )
    return DevicePlatform(declared[names[0]])


def _detected(platform: Platform, manifest: Manifest) -> Target:
    """This machine's target. Raises VerificationError where it has none of the kind."""
    try:
        return platform.detect()
    except (NoDriver, CudaError) as error:
        raise VerificationError(f"{manifest.name} is for {platform.plural}, and {error}") from error


def _sanitizer(manifest: Manifest) -> Path:
    """The sanitizer's program. Raises UsageError unless all functions are for GPUs."""
    if len(_kinds(manifest)) != 1:
        return HOST.sanitizer(manifest.name)
    return _platform(manifest).sanitizer(manifest.name)


def _private_copy(directory: Path, manifest: Manifest, folder: Path) -> Path:
    """A copy of the library that nobody can exchange between its check and its use.

    Raises ManifestError where the library was exchanged before.
    """
    copy = folder / Path(manifest.library).name
    with open_regular(directory / manifest.library) as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target)
    if sha256(copy.read_bytes()).hexdigest() != manifest.files[manifest.library]:
        raise ManifestError(
            f"{directory / manifest.library} was changed while it was being verified"
        )
    return copy


def _check_machine(function: Mapping[str, Any], machine: Target) -> None:
    """Checks kind and instruction set of a function. Raises VerificationError."""
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


@dataclass(frozen=True, kw_only=True)
class _Verifier:
    """Runs the functions of one library."""

    directory: Path
    manifest: Manifest
    library: Path  # the private copy
    platform: Platform
    runner: WorkloadRunner
    machine: Target
    settings: Settings
    seed: int  # of the inputs

    def verdict(self, function: Mapping[str, Any]) -> FunctionVerdict:
        """The verdict on a kernel, or on a portfolio of kernels."""
        spec = function["symbol"]
        result: Retimed | VerificationError
        try:
            if isinstance(self.platform, DevicePlatform) and len(function.get("variants", ())) > 1:
                raise VerificationError(
                    f"{function['symbol']} has variants, which are verified on the machine itself"
                )
            _check_machine(function, self.machine)
            if "ranges" in function:
                family = portfolio_of(function)
                spec = spec_of(family)
                retime = partial(self._retimed_family, function, family)
            else:
                workload = workload_of(function)
                spec = workload.spec
                retime = partial(self._retimed, function, workload)
            result = self._with_variants(retime(self.runner), function, retime)
        except VerificationError as error:
            result = error
        except TunerError as error:
            result = VerificationError(f"{function['symbol']}: {error}")
        return self._verdict(function, spec, result)

    def model_verdict(self, function: Mapping[str, Any]) -> FunctionVerdict:
        """The verdict on a whole model, which runs on the inputs of the examples."""
        result: Retimed | VerificationError
        try:
            _check_machine(function, self.machine)
            threads = self._threads(function)
            with self.platform.executor(self.machine, self.settings, threads) as executor:
                error, run = checked_model(
                    function, self.directory, self.manifest, self.library, executor
                )
            result = Retimed(
                max_rel_error=error,
                median_s=run.median_s,
                ci95_s=run.ci95_s,
                ratio=_ratio(run.median_s, function),
                threads=threads,
            )
        except TunerError as failure:
            result = VerificationError(f"{function['symbol']}: {failure}")
        return self._verdict(function, "model", result)

    def sanitized(
        self, retimed: Retimed, function: Mapping[str, Any], tool: str, sanitizer: Path
    ) -> Retimed | VerificationError:
        """The result of a function that was right, after a run under a sanitizer's tool."""
        symbol = function["symbol"]
        subject = Subject(
            workload=to_document(workload_of(function)),
            seed=self.seed,
            library=str(self.library),
            symbol=symbol,
        )
        try:
            sanitize_kernel(tool, subject, sanitizer=sanitizer)
        except SanitizerError as error:
            return VerificationError(f"{symbol}: {error}")
        return replace(retimed, sanitized=(*retimed.sanitized, tool))

    def _verdict(
        self, function: Mapping[str, Any], spec: str, result: Retimed | VerificationError
    ) -> FunctionVerdict:
        return FunctionVerdict(
            symbol=function["symbol"],
            spec=spec,
            manifest_median_s=float(function["median_s"]),
            same_target=function["target"].get("key") == self.machine.key,
            result=result,
        )

    def _threads(self, function: Mapping[str, Any]) -> int:
        """A device may have more cores than this machine, or fewer: its runner sees to it."""
        tuned = int(function["threads"])
        return tuned if isinstance(self.platform, DevicePlatform) else usable_threads(tuned)

    def _retimed(
        self, function: Mapping[str, Any], workload: Workload, runner: WorkloadRunner
    ) -> Retimed:
        """Error and time of a kernel. Raises VerificationError for a wrong answer."""
        threads = self._threads(function)
        contender = Contender(
            name=SUBJECT,
            library=str(self.library),
            symbol=function["symbol"],
            timeout_s=self.settings.run_timeout_s,
        )
        runs = runner.prepare(workload, threads=threads, seed=self.seed)
        result = race([contender], runs, rounds=MIN_ROUNDS, plan=PLAN)
        if SUBJECT in result.failed:
            failure = result.failed[SUBJECT]
            raise VerificationError(
                f"{function['symbol']} failed: {failure.kind}: {failure.message}"
            )
        median_s, ci95_s = race_median_ci95(result.rounds[SUBJECT])
        return Retimed(
            max_rel_error=result.max_rel_error[SUBJECT],
            median_s=median_s,
            ci95_s=ci95_s,
            ratio=_ratio(median_s, function),
            threads=threads,
        )

    def _retimed_family(
        self, function: Mapping[str, Any], family: Portfolio, runner: WorkloadRunner
    ) -> Retimed:
        """Errors of members at both ends of the range and between; the greatest's time."""
        ((low, high),) = family.ranges.values()
        between = np.random.default_rng(self.seed).integers(low, high + 1, size=MEMBERS_BETWEEN)
        results = [
            self._retimed(function, member(family, extent), runner)
            for extent in sorted({low, *(int(extent) for extent in between), high})
        ]
        return replace(results[-1], max_rel_error=max(result.max_rel_error for result in results))

    def _with_variants(
        self,
        retimed: Retimed,
        function: Mapping[str, Any],
        retime: Callable[[WorkloadRunner], Retimed],
    ) -> Retimed:
        """The result with each variant run too, as far as this machine can.

        The library takes a variant when the features of those before it are hidden.
        """
        variants, times, worst = function.get("variants", []), {}, retimed.max_rel_error
        for place, variant in enumerate(variants[1:], start=1):
            richer = {feature for earlier in variants[:place] for feature in earlier["isa"]}
            hidden = richer - set(variant["isa"])
            if set(variant["isa"]) & DETECTED <= set(self.machine.isa):
                with cpu_runner(self.settings, without=sorted(hidden)) as runner:
                    lesser = retime(runner)
                times[variant["name"]] = lesser.median_s
                worst = max(worst, lesser.max_rel_error)
        return replace(retimed, max_rel_error=worst, variants=times)


def _ratio(median_s: float, function: Mapping[str, Any]) -> float | None:
    """The time here divided by the manifest's; None where that is 0."""
    stated_s = float(function["median_s"])
    return median_s / stated_s if stated_s > 0 else None

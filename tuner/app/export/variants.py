"""Variants: a kernel compiled for lesser CPUs too, verified and timed on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.app.export.schedules import stored_schedule
from tuner.app.platforms.cpu import CpuRunner
from tuner.app.races.race import PLAN
from tuner.errors import TunerError, UsageError
from tuner.export.kernel import ExportKernel, Variant
from tuner.export.library import function_of
from tuner.lowering.compiler import compile_kernel, compile_stored
from tuner.measure.race import Contender, Runs, race
from tuner.measure.runner import RunnerProcess
from tuner.measure.statistics import MIN_ROUNDS, race_median_ci95
from tuner.measure.timing import TimingPlan
from tuner.runtime.link import link
from tuner.scratch import temporary_folder
from tuner.settings import Settings
from tuner.target.architectures.table import architecture_of, detectable_features
from tuner.target.architectures.x86_64.cpuid import LEVELS
from tuner.target.target import Target
from tuner.workload.workload import Workload

TUNED, DEFAULT = "tuned", "default"
SYMBOL = "kernel"


class VariantError(TunerError):
    """No variant for a lesser CPU gives right answers. Nothing was exported."""

    code = "variant"


def checked_levels(text: str, machine: Target) -> tuple[str, ...]:
    """The levels named in a comma-separated text, the richest first.

    The machine's own level is left out. Raises UsageError for a level that does not
    exist, or whose code cannot run here, where it has to be verified.
    """
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in LEVELS]
    if unknown or not names:
        raise UsageError(
            f"unknown level {(unknown or [text])[0]!r}; give one or more of {', '.join(LEVELS)}"
        )
    if not architecture_of(machine).levels:
        raise UsageError(f"{machine.name} is no x86-64; levels are of that architecture alone")
    for name in names:
        missing = sorted(set(LEVELS[name]) & detectable_features() - set(machine.isa))
        if missing:
            raise UsageError(
                f"{name} needs {', '.join(missing)}, which this CPU lacks; kernels are verified "
                f"where they are exported"
            )
    return tuple(name for name in LEVELS if name in names and name != machine.tvm.get("mcpu"))


class VariantMaker:
    """Gives kernels their variants; a `Widen`. A context, because it holds a runner."""

    def __init__(
        self, levels: Sequence[str], machine: Target, settings: Settings, plan: TimingPlan = PLAN
    ) -> None:
        self._levels = tuple(levels)
        self._machine, self._settings, self._plan = machine, settings, plan
        self._process = RunnerProcess()
        self._runner = CpuRunner(self._process, settings)

    def __enter__(self) -> VariantMaker:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.close()

    def __call__(
        self, kernel: ExportKernel, workload: Workload, schedule: Mapping[str, Any]
    ) -> ExportKernel:
        """The kernel with a variant for each level.

        `schedule` is its stored document. Raises VariantError, LinkError.
        """
        runs = self._runner.prepare(workload, threads=kernel.threads, seed=self._settings.seed)
        variants = tuple(
            self._variant(level, kernel, workload, schedule, runs) for level in self._levels
        )
        return replace(kernel, variants=variants)

    def _variant(
        self,
        level: str,
        kernel: ExportKernel,
        workload: Workload,
        schedule: Mapping[str, Any],
        runs: Runs,
    ) -> Variant:
        """The faster of the kernel's own and the default schedule, compiled for the level."""
        codes = self._codes(level, kernel, workload, schedule)
        compiled = {
            name: replace(
                kernel,
                symbol=SYMBOL,
                isa=LEVELS[level],
                object_code=code,
                variants=(),
                expected=None,
            )
            for name, code in codes.items()
        }
        with temporary_folder("tuner-scratch-variant-") as folder:
            contenders = []
            for name, candidate in compiled.items():
                path = folder / f"{name}.so"
                path.write_bytes(link(SYMBOL + "s", [function_of(candidate)]))
                timeout_s = self._settings.run_timeout_s
                contenders.append(
                    Contender(name=name, library=str(path), symbol=SYMBOL, timeout_s=timeout_s)
                )
            result = race(contenders, runs, rounds=MIN_ROUNDS, plan=self._plan)
        times = {name: race_median_ci95(rounds) for name, rounds in result.rounds.items()}
        if not times:
            reasons = "; ".join(
                f"{name}: {failed.kind}: {failed.message}" for name, failed in result.failed.items()
            )
            raise VariantError(f"{workload.spec} for {level} could not be verified: {reasons}")
        best = min(times, key=lambda name: times[name][0])
        return Variant(
            name=level,
            isa=LEVELS[level],
            schedule="tuned" if best == TUNED else "default",
            object_code=compiled[best].object_code,
            tvm_symbol=compiled[best].tvm_symbol,
            prepack=compiled[best].prepack,
            median_s=times[best][0],
            ci95_s=times[best][1],
            max_rel_error=result.max_rel_error[best],
        )

    def _codes(
        self, level: str, kernel: ExportKernel, workload: Workload, schedule: Mapping[str, Any]
    ) -> dict[str, bytes]:
        """Object code for the level by schedule: `TUNED`, and `DEFAULT` where it differs."""
        target = replace(self._machine, tvm={"kind": "llvm", "mcpu": level}, isa=LEVELS[level])
        codes = {TUNED: compile_stored(stored_schedule(schedule), target)}
        if kernel.prepack is not None:
            # The default schedule does not pack, and a function takes packed constants on
            # all CPUs or on none.
            return codes
        default = compile_kernel(
            workload=workload,
            target=target,
            threads=kernel.threads,
            config=None,
            symbol=str(schedule["symbol"]),
        ).object_code
        return codes if default == codes[TUNED] else codes | {DEFAULT: default}

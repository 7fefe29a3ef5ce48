"""Libraries for a CPU that is not here: kernels that the estimate of cycles ranks first.

Nothing of them was measured or verified, which their manifest says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tuner.app.export.exporters import NAME
from tuner.app.machine import named_target
from tuner.cost_model.features import ESTIMATE, featurizer
from tuner.errors import IllegalSchedule, TunerError, UsageError
from tuner.export.examples import expected_outputs
from tuner.export.kernel import ExportKernel, computation_of
from tuner.export.library import export_library
from tuner.export.manifest import Manifest
from tuner.export.signature import KEY_FILE, signer_at
from tuner.lowering.compiler import BuildError, Compiled, compile_program
from tuner.runtime.link import toolchain_for
from tuner.settings import Settings
from tuner.spaces.by_target import cpu_space
from tuner.target.capability import is_declared
from tuner.target.target import Target
from tuner.workload.workload import Workload

POINTS = 4096  # of a space, that are ranked
TRIES = 16  # of the first ones, until a schedule compiles
SYMBOL = "tuned_kernel"
MODULE_BYTES = 1 << 32  # of a module's memory, whose addresses have 32 bits
EXPECTED_FLOPS = 2e9  # of a workload whose right outputs the examples check: some seconds


class NoSchedule(TunerError):
    """None of the schedules that the estimate ranks first compiles."""

    code = "no_schedule"


def export_estimated(
    workloads: Sequence[Workload], settings: Settings, directory: Path, name: str | None
) -> Manifest:
    """Writes a library for the declared CPU that the settings name, whole or not at all.

    Raises UsageError for a target that is no declared CPU and for what a module has no room
    for, LinkError where its compiler is missing, NoSchedule, and what `export_library`
    raises.
    """
    target = named_target(settings)
    if target.on_device or not is_declared(target):
        raise UsageError(
            f"--target {settings.target}: only kernels for a declared CPU are exported unmeasured, "
            f"such as cpu:neoverse-n1 (tuner targets lists them); tune for this machine and export "
            f"the kernel by its id"
        )
    tools = toolchain_for(target)
    if tools.freestanding:
        _check_memory(workloads)
    # Each with an entry of its own: no tool renames those of a module's objects.
    kernels = [
        estimated_kernel(workload, target, settings, f"{SYMBOL}_{number}")
        for number, workload in enumerate(workloads)
    ]
    signer = signer_at(settings.data_dir / KEY_FILE)
    return export_library(kernels, directory, name or NAME, toolchain=tools, signer=signer)


def _check_memory(workloads: Sequence[Workload]) -> None:
    """Raises UsageError for a workload whose tensors a module's memory does not hold."""
    for workload in workloads:
        expression = workload.expression
        outputs = [expression.tensor(name) for name in expression.outputs]
        nbytes = sum(tensor.nbytes for tensor in (*expression.inputs, *outputs))
        if nbytes >= MODULE_BYTES:
            raise UsageError(
                f"{workload.spec} takes {nbytes} bytes, and a module's memory ends at "
                f"{MODULE_BYTES}; export smaller shapes"
            )


def estimated_kernel(
    workload: Workload, target: Target, settings: Settings, symbol: str
) -> ExportKernel:
    """The kernel of the config that the estimate ranks first. Raises NoSchedule.

    `symbol` is that of its object code.
    """
    compiled = _compiled(workload, target, settings, symbol)
    kernel = ExportKernel(
        **computation_of(workload, target),
        threads=settings.threads,
        object_code=compiled.object_code,
        tvm_symbol=f"__tvm_ffi_{compiled.symbol}",
        prepack=compiled.prepack,
        measured=False,
        median_s=0.0,
        ci95_s=(0.0, 0.0),
        verified=False,
        max_rel_error=0.0,
        provenance={"trace": compiled.schedule.text, "versions": compiled.schedule.versions},
    )
    expected = expected_outputs(workload.expression, kernel, most_flops=EXPECTED_FLOPS)
    return replace(kernel, expected=expected)


def _compiled(workload: Workload, target: Target, settings: Settings, symbol: str) -> Compiled:
    space = cpu_space(workload, target, settings.threads)
    points = space.space.sample(np.random.default_rng(settings.seed), POINTS)
    order = np.argsort(featurizer(space)(points)[:, ESTIMATE], kind="stable")
    reason = "its space is empty"
    for place in order[:TRIES]:
        try:
            program = space.program(space.space.config(points[place]))
            return compile_program(program, target, symbol)
        except (IllegalSchedule, BuildError) as error:
            reason = str(error)
    raise NoSchedule(f"no kernel of {workload.spec} for {target.name}: {reason}")

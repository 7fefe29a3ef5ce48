"""Kernels of models without a search: default schedules, random ones, other algorithms."""

from __future__ import annotations

import numpy as np

from tests.support.targets import host_target
from tuner.export.kernel import Argument, ExportKernel, TargetName
from tuner.lowering.compiler import compile_kernel
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.spaces.program.in_place import overwritable
from tuner.target.target import Target
from tuner.workload.workload import Workload


def compiled(workload: Workload, seed: int | None, target: Target | None = None) -> ExportKernel:
    """The default schedule, or that of a random config; for this machine by itself."""
    space = space_of(workload, target or host_target(), 1).space
    return kernel_of(
        workload,
        None if seed is None else space.config(space.sample(np.random.default_rng(seed), 1)[0]),
        target,
    )


def fast_config(workload: Workload) -> Config:
    """A random config of an algorithm that fast numerics adds."""
    made = space_of(workload, host_target(), 1)
    generator = np.random.default_rng(0)
    while True:
        config = made.space.config(made.space.sample(generator, 1)[0])
        if made.algorithms[str(config["sketch"])].rewritten:
            return config


def kernel_of(
    workload: Workload, config: Config | None, target: Target | None = None
) -> ExportKernel:
    """The kernel of a config, None for the default schedule; its numbers are made up."""
    target = target or host_target()
    symbol = f"kernel_{workload.key[:16]}"
    made = compile_kernel(workload=workload, target=target, threads=1, config=config, symbol=symbol)
    expression = workload.expression
    outputs = (expression.tensor(name) for name in expression.outputs)
    roles = [("in", tensor) for tensor in expression.inputs] + [
        ("out", tensor) for tensor in outputs
    ]
    return ExportKernel(
        workload_key=workload.key,
        arguments=tuple(
            Argument(
                name=tensor.name,
                dtype=tensor.dtype,
                shape=tensor.shape,
                role="in" if role == "in" else "out",
            )
            for role, tensor in roles
        ),
        target=TargetName(key=target.key, kind="cpu", name=target.name),
        isa=target.isa,
        threads=1,
        object_code=made.object_code,
        tvm_symbol=f"__tvm_ffi_{symbol}",
        prepack=made.prepack,
        overwritable=overwritable(made.program),
        median_s=1.0,
        ci95_s=(1.0, 1.0),
        verified=True,
        max_rel_error=0.0,
    )

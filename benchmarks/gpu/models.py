"""Compile candidates of each kernel of a network, and how one call of it uses them.

The first half of the races of whole models. Weights are inputs of the model, so that none
is carried: either side makes the same random ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.candidates import built_candidates
from benchmarks.gpu.carried.networks import NETWORKS
from benchmarks.gpu.choose import chosen
from tuner.errors import UsageError
from tuner.export.kernel import ExportKernel, TargetName, arguments_of
from tuner.lowering.cuda.nvcc import CudaCompiler
from tuner.models.from_torch.reader import graph_of_program
from tuner.models.graph import Graph
from tuner.models.library.cuda_library import cuda_model_kernel
from tuner.models.library.library import ModelNumbers
from tuner.models.passes.fusion import fuse
from tuner.models.workloads import workloads_of
from tuner.runtime.cuda_model import ModelCopy, unpacked_model
from tuner.runtime.cuda_module import CudaModule, Launch
from tuner.spaces.by_target import gpu_space
from tuner.target.target import Target
from tuner.workload.expression import Tensor
from tuner.workload.workload import Workload

PROGRAM = "program.model"  # the steps of a call: a packed model without code


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRace:
    name: str  # of its folder
    spec: str  # what it is called
    network: str  # a name in carried/networks.py
    batch: int
    bars: dict[str, float]  # least ratio library / model, by architecture that has this race
    sizes: dict[str, Any] = field(default_factory=dict)  # other than the network's own
    dtype: str = "float16"
    # Of the largest output, that any may differ from the network's in float32.
    bound: float = 0.02


def build_model(
    race: ModelRace,
    folder: Path,
    targets: Sequence[Target],
    candidates: int,
    compiler: CudaCompiler,
    said: Callable[[str], None],
) -> dict[str, Any]:
    """Write the race's candidates into the folder, and give what the suite says of it.

    The first candidate of each kernel is its default schedule, which the others are
    checked against. Raises UsageError without PyTorch.
    """
    graph = traced(race)
    workloads = [part.workload for part in workloads_of(graph)]
    built: dict[str, list[dict[str, Any]]] = {}
    for target in targets:
        arch = str(target.tvm["arch"])
        built[arch] = []
        for number, workload in enumerate(workloads if arch in race.bars else ()):
            space = gpu_space(workload, target)
            configs = [
                space.space.config(space.space.unrank(0)),
                *chosen(space, candidates, np.random.default_rng(number)),
            ]
            place = folder / race.name / arch / str(number)
            for candidate in built_candidates(space, configs, place, compiler):
                file = str((place / candidate["file"]).relative_to(folder))
                built[arch].append({**candidate, "file": file, "kernel": number})
        said(f"{race.name} for {arch}: {len(built[arch])} candidates of {len(workloads)} kernels")
    program = folder / race.name / PROGRAM
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_bytes(_program(graph, workloads, targets[0]))
    return {
        "name": race.name, "kind": "network", "dtype": race.dtype, "spec": race.spec,
        "network": race.network, "batch": race.batch, "sizes": dict(race.sizes),
        "bars": dict(race.bars), "bound": race.bound, "program": f"{race.name}/{PROGRAM}",
        "flops": sum(part.calls * part.workload.expression.flops for part in workloads_of(graph)),
        "built": built,
    }  # fmt: skip


def traced(race: ModelRace) -> Graph:
    """The network's graph, whose inputs are its input and its weights.

    Raises UsageError without PyTorch.
    """
    try:
        import torch  # noqa: PLC0415  (not everybody who builds has it)
    except ImportError as error:
        raise UsageError(f"{race.name} is read from PyTorch, which is not installed") from error
    network = NETWORKS[race.network](torch, race.batch, **race.sizes)

    class Program(torch.nn.Module):  # type: ignore[misc]  # PyTorch is Any to mypy
        def forward(self, x: Any, *weights: Any) -> Any:
            return network.written_out(x, *weights)

    with torch.no_grad():
        given = [
            torch.zeros(shape, dtype=getattr(torch, race.dtype))
            for shape in (network.input, *network.weights)
        ]
        return fuse(graph_of_program(torch.export.export(Program(), tuple(given))))


def _program(graph: Graph, workloads: Sequence[Workload], target: Target) -> bytes:
    """The steps of a call, one for each kernel, as a packed model."""
    kernels = {workload.key: _without_code(workload, target) for workload in workloads}
    kernel = cuda_model_kernel(graph, kernels, target, 1, "network", ModelNumbers())
    model = unpacked_model(kernel.object_code)
    if any(isinstance(step, ModelCopy) for step in model.steps):
        raise UsageError("a network that gives what it was given has no race")
    return kernel.object_code


def _without_code(workload: Workload, target: Target) -> ExportKernel:
    """A kernel that stands for every candidate: one launch of all its arguments."""
    arguments = arguments_of(workload.expression)
    tensors: dict[str, list[Tensor]] = {"in": [], "out": []}
    for argument in arguments:
        tensors[argument.role].append(argument.tensor)
    launch = Launch(
        kernel="any",
        arguments=tuple(argument.name for argument in arguments),
        grid=(1, 1, 1),
        block=(1, 1, 1),
        shared_bytes=0,
    )
    module = CudaModule(
        symbol="any",
        inputs=tuple(tensors["in"]),
        outputs=tuple(tensors["out"]),
        workspace=(),
        launches=(launch,),
        cubins=((str(target.tvm["arch"]), b"none"),),
    )
    return ExportKernel(
        workload_key=workload.key,
        arguments=arguments,
        target=TargetName.of(target),
        isa=target.isa,
        threads=1,
        object_code=module.pack(),
        tvm_symbol="any",
        median_s=1.0,
        ci95_s=(1.0, 1.0),
        verified=False,
        max_rel_error=0.0,
    )

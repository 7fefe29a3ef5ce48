"""A model as one function: kernels, executor and constants in one relocatable object.

The object is exported as a kernel's object is. Constants are packed here, once, by the
kernels' own pack functions, so a library holds them in the layout its kernels read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from tuner.export.kernel import Argument, ExportKernel, TargetName
from tuner.models.graph import Array, Graph
from tuner.models.graph_archive import packed
from tuner.models.library.concurrency import Fork
from tuner.models.library.cpu_source import constants_source, executor
from tuner.models.library.layout import Layout, Switches, layout_of, write_constants
from tuner.runtime.link import HEADERS, Function, link, runtime_sources, toolchain_for
from tuner.runtime.loader import Library
from tuner.runtime.prepack import Prepack, pack_symbol
from tuner.runtime.toolchain import LinkError, Toolchain, run
from tuner.runtime.wrapper import MAX_ARGUMENTS, Entry
from tuner.scratch import temporary_folder
from tuner.target.target import Target

_PACKER = "pack"

Pack = Callable[[Path, str, Sequence[Array]], list[Array]]
"""Calls the pack function of a library on constants: what it gives, as bits."""


def packed_here(library: Path, symbol: str, constants: Sequence[Array]) -> list[Array]:
    """A `Pack` in this process."""
    result = Library(library).function(symbol)(*constants)
    return list(result) if isinstance(result, tuple) else [result]


@dataclass(frozen=True, kw_only=True)
class ModelNumbers:
    """Measurements of the model as a whole; zeros for a model that was not measured."""

    median_s: float = 0.0
    ci95_s: tuple[float, float] = (0.0, 0.0)
    max_rel_error: float = 0.0  # of its outputs, against ONNX's reference evaluator
    verified: bool = False
    provenance: Mapping[str, Any] = field(default_factory=dict)


def model_kernel(
    graph: Graph,
    kernels: Mapping[str, ExportKernel],
    target: Target,
    threads: int,
    symbol: str,
    numbers: ModelNumbers,
    *,
    profiled: bool = False,
    switches: Switches | None = None,
    forks: Sequence[Fork] = (),
    pack: Pack = packed_here,
) -> ExportKernel:
    """The model as one kernel on its inputs and outputs.

    `kernels` has the kernel of each of its workloads, by the workload's key. With
    `profiled` there is one more output, int64: the nanoseconds that each node took in
    the call. With `switches` there is one more input, uint8: for each node of these, in
    their order, 0 for the kernel of its workload or the number of another, from 1. The
    nodes of `forks` run side by side; not with `profiled`. `pack` runs on a machine of the
    target. Raises LinkError where the compiler fails, KeyError for a workload without a
    kernel, and what `pack` does.
    """
    entry = f"__tvm_ffi_{symbol}"
    arguments = model_arguments(graph)
    if switches:
        choices = Argument(name="choices", dtype="uint8", shape=(len(switches),), role="in")
        place = len(graph.inputs)
        arguments = (*arguments[:place], choices, *arguments[place:])
    if profiled:
        count = len(graph.expressions)
        arguments += (Argument(name="spent_ns", dtype="int64", shape=(count,), role="out"),)
    return exportable(
        graph,
        kernels,
        target,
        threads,
        symbol,
        numbers,
        arguments=arguments,
        object_code=_Object(
            graph, kernels, switches or {}, forks, toolchain_for(target), pack
        ).code(entry, profiled=profiled),
    )


def exportable(
    graph: Graph,
    kernels: Mapping[str, ExportKernel],
    target: Target,
    threads: int,
    symbol: str,
    numbers: ModelNumbers,
    *,
    arguments: tuple[Argument, ...],
    object_code: bytes,
) -> ExportKernel:
    """What export needs to know of a model that was compiled to `object_code`."""
    return ExportKernel(
        workload_key=sha256(packed(graph)).hexdigest(),
        arguments=arguments,
        target=TargetName.of(target),
        isa=tuple(sorted({feature for kernel in kernels.values() for feature in kernel.isa})),
        threads=threads,
        object_code=object_code,
        tvm_symbol=f"__tvm_ffi_{symbol}",
        median_s=numbers.median_s,
        ci95_s=numbers.ci95_s,
        verified=numbers.verified,
        max_rel_error=numbers.max_rel_error,
        symbol=symbol,
        provenance=dict(numbers.provenance),
    )


def model_arguments(graph: Graph) -> tuple[Argument, ...]:
    """Inputs and outputs under the file's names, made distinct identifiers."""
    tensors = [*graph.inputs, *(graph.tensor(name) for name in graph.outputs)]
    arguments: list[Argument] = []
    for number, (label, tensor) in enumerate(zip(graph.labels, tensors, strict=True)):
        plain = re.sub(r"\W", "_", label, flags=re.ASCII)[:64].strip("_") or "x"
        name = plain if all(plain != other.name for other in arguments) else f"{plain}_{number}"
        role: Literal["in", "out"] = "in" if number < len(graph.inputs) else "out"
        only = graph.fixed.get(tensor.name) if role == "in" else None
        arguments.append(
            Argument(
                name=name,
                dtype=tensor.dtype,
                shape=tensor.shape,
                role=role,
                fixed=None if only is None else tuple(only.reshape(-1).tolist()),
                format=graph.formats.get(label, ""),
                fact=graph.ranges.get(tensor.name) if role == "in" else None,
            )
        )
    return _with_bounds(graph, arguments)


def _with_bounds(graph: Graph, arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """The arguments, with the extents of those that have computed ones."""
    count = len(graph.inputs)
    names = {
        label: argument.name
        for label, argument in zip(graph.labels[count:], arguments[count:], strict=True)
    }
    made = [*arguments[:count]]
    for label, argument in zip(graph.labels[count:], arguments[count:], strict=True):
        bounded = graph.bounded.get(label)
        if bounded is not None:
            bounded = replace(bounded, extents=names[bounded.extents])
        made.append(replace(argument, bounded=bounded))
    return tuple(made)


def with_replaced_inputs(function: Function, graph: Graph) -> Function:
    """The function of a model for callers of ours, which may pass the memory of inputs for the
    outputs that replace them."""
    return replace(function, overwritable=tuple(graph.replaced.values()))


class _Object:
    """Builds the relocatable object: each kernel once, the constants, the executor."""

    def __init__(
        self,
        graph: Graph,
        kernels: Mapping[str, ExportKernel],
        switches: Switches,
        forks: Sequence[Fork],
        tools: Toolchain,
        pack: Pack,
    ) -> None:
        self.graph, self.kernels, self.switches, self.forks = graph, kernels, switches, forks
        self.tools, self.pack = tools, pack
        self.packers: dict[str, Path] = {}  # libraries, by the workload's key

    def code(self, entry: str, *, profiled: bool = False) -> bytes:
        """The object's bytes. Raises LinkError."""
        with temporary_folder("tuner-scratch-model-") as folder:
            return self._code(entry, folder, profiled=profiled)

    def _code(self, entry: str, folder: Path, *, profiled: bool) -> bytes:
        if len(self.graph.labels) > MAX_ARGUMENTS:
            raise LinkError(
                f"the model has {len(self.graph.labels)} inputs and outputs; at most "
                f"{MAX_ARGUMENTS} are taken"
            )
        layout = layout_of(
            self.graph,
            self.kernels,
            switches=self.switches,
            pack=partial(self._packed, folder),
            forks=self.forks,
        )
        functions = [
            self._renamed(self.kernels[key], f"{entry}_{number}", number)
            for number, key in enumerate(layout.keys)
        ]
        text = executor(
            entry,
            kernels=[
                replace(_entry(function), overwritable=_passed(self.kernels[key]))
                for function, key in zip(functions, layout.keys, strict=True)
            ],
            layout=layout,
            names=[argument.name for argument in model_arguments(self.graph)],
            inputs=len(self.graph.inputs) + bool(self.switches),
            outputs=len(self.graph.outputs) + profiled,
            machine=self.tools.machine,
            profiled=profiled,
        )
        return self._combined(entry, text, layout, [function.object_code for function in functions])

    def _packed(
        self,
        folder: Path,
        key: str,
        kernel: ExportKernel,
        prepack: Prepack,
        given: Sequence[Array],
    ) -> list[Array]:
        """The constants in the layout that the kernel's pack function gives them."""
        if key not in self.packers:
            self.packers[key] = folder / f"packer{len(self.packers)}.so"
            self.packers[key].write_bytes(_packer(kernel, prepack, self.tools))
        return self.pack(self.packers[key], _PACKER, given)

    def _renamed(self, kernel: ExportKernel, entry: str, number: int) -> Function:
        inputs = tuple(argument.tensor for argument in kernel.inputs)
        if kernel.prepack is not None:
            inputs = kernel.prepack.kernel_inputs(inputs, kernel.prepack.packed)
        code = self.tools.renamed(kernel.object_code, kernel.tvm_symbol, entry)
        if kernel.prepack is not None:  # several kernels of a workload have it under one name
            code = self.tools.renamed(code, kernel.prepack.tvm_symbol, pack_symbol(entry))
        return Function(
            symbol=f"kernel_{number}",
            inputs=inputs,
            outputs=tuple(argument.tensor for argument in kernel.outputs),
            object_code=code,
            isa=kernel.isa,
            threads=kernel.threads,
            tvm_symbol=entry,
        )

    def _combined(self, entry: str, text: str, layout: Layout, kernels: Sequence[bytes]) -> bytes:
        sources = runtime_sources()
        compiled = self.tools.compile(
            "model.c", text, {header: sources[header] for header in HEADERS}
        )
        with temporary_folder("tuner-scratch-model-") as folder:
            names = []
            for number, code in enumerate(kernels):
                (folder / f"kernel{number}.o").write_bytes(code)
                names.append(f"kernel{number}.o")
            with (folder / "constants.bin").open("wb") as file:
                write_constants(layout, file)
            (folder / "constants.S").write_text(constants_source(entry))
            run([*self.tools.command, "-c", "constants.S", "-o", "constants.o"], cwd=folder)
            objects = [str(compiled), "constants.o", *names]
            run([*self.tools.command, "-nostdlib", "-r", "-o", "model.o", *objects], cwd=folder)
            return (folder / "model.o").read_bytes()


def _passed(kernel: ExportKernel) -> tuple[int, ...]:
    """The positions of inputs that may be overwritten among what the kernel takes."""
    if kernel.prepack is None:
        return kernel.overwritable
    return tuple(kernel.prepack.passed.index(place) for place in kernel.overwritable)


def _entry(function: Function) -> Entry:
    return Entry(
        symbol=function.symbol,
        inputs=function.inputs,
        outputs=function.outputs,
        isa=function.isa,
        threads=function.threads,
        tvm_symbol=function.tvm_symbol,
    )


def _packer(kernel: ExportKernel, prepack: Prepack, tools: Toolchain) -> bytes:
    """A library with the kernel's pack function only."""
    function = Function(
        symbol=_PACKER,
        inputs=tuple(argument.tensor for argument in kernel.constants_packed),
        outputs=prepack.packed,
        object_code=kernel.object_code,
        isa=kernel.isa,
        threads=1,
        tvm_symbol=prepack.tvm_symbol,
    )
    return link("packer", [function], toolchain=tools)

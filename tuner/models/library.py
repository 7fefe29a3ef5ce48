"""A model as one function: kernels, executor and constants in one relocatable object.

The object is exported as a kernel's object is. Constants are packed here, once, by the
kernels' own pack functions, so a library holds them in the layout its kernels read.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tuner.export.kernel import Argument, ExportKernel, TargetName
from tuner.models.executor import (
    Choice,
    Copy,
    Failure,
    Fixed,
    Move,
    Repeat,
    Step,
    Steps,
    Switch,
    constants_source,
    executor,
)
from tuner.models.graph import Array, Graph, packed
from tuner.models.memory import ALIGNMENT, Place, plan_memory, staged
from tuner.models.nodes import Branch, Node, Scan, Side
from tuner.models.workloads import workload_of
from tuner.runtime.link import HEADERS, Function, link, runtime_sources, system_toolchain
from tuner.runtime.loader import Library
from tuner.runtime.prepack import Prepack, pack_symbol
from tuner.runtime.toolchain import LinkError, Toolchain, run
from tuner.runtime.wrapper import MAX_ARGUMENTS, Entry
from tuner.target.target import Target
from tuner.workload.expression import Expression, Tensor

_PACKER = "pack"

Switches = Mapping[str, Sequence[str]]
"""Other kernels of nodes by the keys under which they are, by the nodes' first outputs."""


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
) -> ExportKernel:
    """The model as one kernel on its inputs and outputs.

    `kernels` has the kernel of each of its workloads, by the workload's key. With
    `profiled` there is one more output, int64: the nanoseconds that each node took in
    the call. With `switches` there is one more input, uint8: for each node of these, in
    their order, 0 for the kernel of its workload or the number of another, from 1. Raises
    LinkError where the compiler fails, KeyError for a workload without a kernel.
    """
    entry = f"__tvm_ffi_{symbol}"
    arguments = _arguments(graph)
    if switches:
        choices = Argument(name="choices", dtype="uint8", shape=(len(switches),), role="in")
        place = len(graph.inputs)
        arguments = (*arguments[:place], choices, *arguments[place:])
    if profiled:
        count = len(graph.expressions)
        arguments += (Argument(name="spent_ns", dtype="int64", shape=(count,), role="out"),)
    return ExportKernel(
        workload_key=sha256(packed(graph)).hexdigest(),
        arguments=arguments,
        target=TargetName(key=target.key, kind=target.kind, name=target.name),
        isa=tuple(sorted({feature for kernel in kernels.values() for feature in kernel.isa})),
        threads=threads,
        object_code=_Object(graph, kernels, switches or {}).code(entry, profiled=profiled),
        tvm_symbol=entry,
        median_s=numbers.median_s,
        ci95_s=numbers.ci95_s,
        verified=numbers.verified,
        max_rel_error=numbers.max_rel_error,
        symbol=symbol,
        provenance=dict(numbers.provenance),
    )


def _arguments(graph: Graph) -> tuple[Argument, ...]:
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


class _Object:
    """Builds the relocatable object: each kernel once, each constant once, the executor."""

    def __init__(
        self, graph: Graph, kernels: Mapping[str, ExportKernel], switches: Switches
    ) -> None:
        self.graph, self.kernels, self.switches = graph, kernels, switches
        self.tools: Toolchain = system_toolchain()
        self.plan = plan_memory(graph, self._overwritable())
        self.used: dict[str, int] = {}  # key -> position among the kernels
        self.blobs: list[Array] = []
        self.offsets: dict[str, int] = {}  # SHA-256 of a constant's bytes -> where they begin
        self.size = 0
        self.packers: dict[str, Library] = {}
        self.packed: dict[tuple[str, ...], list[Array]] = {}
        # Of tensors inside of scans and branches that lie in others.
        self.inner: dict[str, Place] = {}

    def _overwritable(self) -> dict[str, tuple[str, ...]]:
        """The inputs whose memory each node's result may have, whichever kernel computes it.

        None that the node reads under another name too, of which the kernel knows nothing.
        """
        inputs = {}
        for node in self.graph.expressions:
            keys = [workload_of(node, self.graph).key, *self.switches.get(node.outputs[0], ())]
            every = [self.kernels[key].overwritable for key in keys]
            roots = [self.graph.root(tensor.name) for tensor in node.inputs]
            inputs[node.outputs[0]] = tuple(
                roots[place]
                for place in every[0]
                if all(place in places for places in every) and roots.count(roots[place]) == 1
            )
        return inputs

    def code(self, entry: str, *, profiled: bool = False) -> bytes:
        """The object's bytes. Raises LinkError."""
        if len(self.graph.labels) > MAX_ARGUMENTS:
            raise LinkError(
                f"the model has {len(self.graph.labels)} inputs and outputs; at most "
                f"{MAX_ARGUMENTS} are taken"
            )
        steps = self._steps(self.graph.nodes, depth=0)
        copies = [
            Copy(output=number, source=self._place(name), nbytes=self.graph.tensor(name).nbytes)
            for number, name in self.plan.copies
        ]
        functions = [
            self._renamed(self.kernels[key], f"{entry}_{number}", number)
            for key, number in self.used.items()
        ]
        text = executor(
            entry,
            kernels=[
                replace(_entry(function), overwritable=_passed(self.kernels[key]))
                for function, key in zip(functions, self.used, strict=True)
            ],
            steps=steps,
            copies=copies,
            fixed=[
                Fixed(
                    position=number,
                    name=argument.name,
                    place=self._embedded(self.graph.fixed[tensor.name]),
                    nbytes=tensor.nbytes,
                )
                for number, (tensor, argument) in enumerate(
                    zip(self.graph.inputs, _arguments(self.graph), strict=False)
                )
                if tensor.name in self.graph.fixed
            ],
            arena_bytes=self.plan.arena_bytes,
            inputs=len(self.graph.inputs) + bool(self.switches),
            outputs=len(self.graph.outputs) + profiled,
            machine=self.tools.machine,
            profiled=profiled,
        )
        return self._combined(entry, text, [function.object_code for function in functions])

    def _steps(self, nodes: Sequence[Node], depth: int) -> tuple[Steps, ...]:
        """`depth` is the number of scans around the nodes."""
        steps: list[Steps] = []
        for node in nodes:
            if isinstance(node, Expression):
                steps.append(self._step(node))
            elif isinstance(node, Scan):
                steps.append(self._repeat(node, depth))
            else:
                steps.append(self._choice(node, depth))
        return tuple(steps)

    def _choice(self, branch: Branch, depth: int) -> Choice:
        return Choice(
            condition=self._place(branch.condition),
            then=self._side(branch, branch.then, depth),
            other=self._side(branch, branch.other, depth),
        )

    def _side(self, branch: Branch, side: Side, depth: int) -> tuple[Steps, ...] | Failure:
        if side.refusal:
            return Failure(reason=side.refusal)
        in_place = side.in_place
        for number, name in in_place.items():
            self.inner[name] = self._place(branch.results[number].name)
        steps = self._steps(side.nodes, depth)
        copies = tuple(
            self._copy(name, tensor)
            for number, (name, tensor) in enumerate(zip(side.results, branch.results, strict=True))
            if number not in in_place
        )
        return (*steps, *copies)

    def _repeat(self, scan: Scan, depth: int) -> Repeat:
        copied = staged(scan)
        slices = {name: self._slice(scan, name, depth) for name in scan.windows}
        written = {name for node in scan.body for name in node.outputs}
        self.inner |= {name: place for name, place in slices.items() if name not in copied}
        reads, writes = (
            [
                Move(
                    source=self._place(name) if out else slices[name],
                    destination=slices[name] if out else self._place(name),
                    nbytes=scan.shapes[name].nbytes,
                )
                for name in copied
                if (name in written) == out
            ]
            for out in (False, True)
        )
        return Repeat(
            count=scan.count,
            before=tuple(self._copy(state.initial, state.tensor) for state in scan.states),
            condition=None if scan.condition is None else self._place(scan.condition),
            reads=tuple(reads),
            steps=self._steps(scan.body, depth + 1),
            writes=(
                *writes,
                *(
                    self._copy(state.after, state.tensor)
                    for state in scan.states
                    if state.after != state.tensor.name
                ),
            ),
        )

    def _copy(self, source: str, tensor: Tensor) -> Move:
        destination = self._place(tensor.name)
        return Move(source=self._place(source), destination=destination, nbytes=tensor.nbytes)

    def _slice(self, scan: Scan, name: str, depth: int) -> Place:
        window, nbytes = scan.windows[name], scan.shapes[name].nbytes
        whole = self._place(window.tensor)
        outer = (*whole.strides, *(0,) * depth)[:depth]
        return replace(
            whole,
            offset=whole.offset + window.start * nbytes,
            strides=(*outer, window.step * nbytes),
        )

    def _step(self, node: Expression) -> Step:
        step = self._call(node, workload_of(node, self.graph).key)
        others = self.switches.get(node.outputs[0])
        if others is None:
            return step
        byte = list(self.switches).index(node.outputs[0])
        calls = tuple(self._call(node, key) for key in others)
        return replace(step, switch=Switch(byte=byte, others=calls))

    def _call(self, node: Expression, key: str) -> Step:
        """The call of the kernel under `key` for a node."""
        kernel, names = self.kernels[key], [self.graph.root(tensor.name) for tensor in node.inputs]
        position = self.used.setdefault(key, len(self.used))
        outputs = tuple(self._place(name) for name in node.outputs)
        if kernel.prepack is None:
            return Step(kernel=position, buffers=(*(self._place(name) for name in names), *outputs))
        packed_arrays = self._packed(
            key, kernel, kernel.prepack, [names[place] for place in kernel.prepack.constants]
        )
        passed: list[Place] = []
        for place in kernel.prepack.passed:
            passed.append(
                self._place(names[place])
                if place < len(names)
                else self._embedded(packed_arrays[place - len(names)])
            )
        return Step(kernel=position, buffers=(*passed, *outputs))

    def _place(self, name: str) -> Place:
        root = self.graph.root(name)
        if root in self.inner:
            return self.inner[root]
        place = self.plan.places[root]
        return self._embedded(self.graph.constants[root]) if place.kind == "constant" else place

    def _embedded(self, array: Array) -> Place:
        """The place of an array among the library's constants; equal bytes share one."""
        digest = sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        if digest not in self.offsets:
            self.offsets[digest] = self.size
            self.blobs.append(array)
            self.size += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        return Place(kind="constant", position=self.offsets[digest])

    def _packed(
        self, key: str, kernel: ExportKernel, prepack: Prepack, names: Sequence[str]
    ) -> list[Array]:
        """The constants in the layout that the kernel's pack function gives them."""
        cache_key = (key, *names)
        if cache_key not in self.packed:
            if key not in self.packers:
                self.packers[key] = _packer(kernel, prepack)
            given = [
                self.graph.constants[name].reshape(kernel.inputs[place].shape)
                for name, place in zip(names, prepack.constants, strict=True)
            ]
            result = self.packers[key].function(_PACKER)(*given)
            self.packed[cache_key] = list(result) if isinstance(result, tuple) else [result]
        return self.packed[cache_key]

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

    def _combined(self, entry: str, text: str, kernels: Sequence[bytes]) -> bytes:
        sources = runtime_sources()
        compiled = self.tools.compile(
            "model.c", text, {header: sources[header] for header in HEADERS}
        )
        with tempfile.TemporaryDirectory(prefix="tuner-model-") as folder:
            names = []
            for number, code in enumerate(kernels):
                Path(folder, f"kernel{number}.o").write_bytes(code)
                names.append(f"kernel{number}.o")
            with Path(folder, "constants.bin").open("wb") as file:
                for blob in self.blobs:
                    file.write(np.ascontiguousarray(blob).tobytes())
                    file.write(bytes(-blob.nbytes % ALIGNMENT))
            Path(folder, "constants.S").write_text(constants_source(entry))
            run([*self.tools.command, "-c", "constants.S", "-o", "constants.o"], cwd=folder)
            objects = [str(compiled), "constants.o", *names]
            run([*self.tools.command, "-nostdlib", "-r", "-o", "model.o", *objects], cwd=folder)
            return Path(folder, "model.o").read_bytes()


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


def _packer(kernel: ExportKernel, prepack: Prepack) -> Library:
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
    with tempfile.TemporaryDirectory(prefix="tuner-model-") as folder:
        path = Path(folder, "packer.so")
        path.write_bytes(link("packer", [function]))
        return Library(path)

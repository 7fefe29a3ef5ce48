"""What a call of a model does, step by step, and where all of it lies.

Executors for each kind of target are made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import BinaryIO

import numpy as np

from tuner.export.kernel import ExportKernel
from tuner.models.graph import Array, Graph
from tuner.models.library.concurrency import Fork
from tuner.models.library.memory import ALIGNMENT, MemoryPlan, Place, plan_memory, staged
from tuner.models.library.steps import (
    Choice,
    Concurrent,
    Copy,
    Failure,
    Fixed,
    Move,
    Repeat,
    Step,
    Steps,
    Switch,
)
from tuner.models.nodes import Branch, Node, Scan, Side
from tuner.models.workloads import workload_of
from tuner.runtime.prepack import Prepack
from tuner.workload.expression import Expression, Tensor

Switches = Mapping[str, Sequence[str]]
"""Other kernels of nodes by the keys under which they are, by the nodes' first outputs."""

Pack = Callable[[str, ExportKernel, Prepack, Sequence[Array]], Sequence[Array]]
"""Constants in the layout that the kernel under a key wants them in."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The steps of a call, and what lies where."""

    keys: tuple[str, ...]  # of the kernels, by their positions in steps
    steps: tuple[Steps, ...]
    copies: tuple[Copy, ...]  # at the end
    fixed: tuple[Fixed, ...]
    arena_bytes: int
    constants: tuple[Array, ...]  # one after the other, each padded to the alignment
    alignment: int

    @property
    def constant_bytes(self) -> int:
        return sum(padded(array.nbytes, self.alignment) for array in self.constants)


def layout_of(
    graph: Graph,
    kernels: Mapping[str, ExportKernel],
    *,
    switches: Switches,
    pack: Pack,
    scratch: Mapping[str, Sequence[int]] | None = None,
    alignment: int = ALIGNMENT,
    forks: Sequence[Fork] = (),
) -> Layout:
    """The layout of a model whose kernels are there, by their workloads' keys.

    `scratch` has, by these keys, the bytes of the buffers that kernels use besides their
    arguments; they come behind these. Raises KeyError for a workload without a kernel.
    """
    planner = _Planner(graph, kernels, switches, pack, scratch or {}, alignment, forks)
    steps = planner.forked(forks)
    copies = tuple(
        Copy(output=number, source=planner.place(name), nbytes=graph.tensor(name).nbytes)
        for number, name in planner.plan.copies
    )
    fixed = tuple(
        Fixed(
            position=number,
            place=planner.embedded(graph.fixed[tensor.name]),
            nbytes=tensor.nbytes,
        )
        for number, tensor in enumerate(graph.inputs)
        if tensor.name in graph.fixed
    )
    return Layout(
        keys=tuple(planner.used),
        steps=steps,
        copies=copies,
        fixed=fixed,
        arena_bytes=planner.plan.arena_bytes,
        constants=tuple(planner.constants),
        alignment=alignment,
    )


def padded(nbytes: int, alignment: int) -> int:
    """The bytes rounded up to whole multiples of the alignment."""
    return -(-nbytes // alignment) * alignment


class _Planner:
    """Turns nodes into steps. Each constant is kept once."""

    def __init__(
        self,
        graph: Graph,
        kernels: Mapping[str, ExportKernel],
        switches: Switches,
        pack: Pack,
        scratch: Mapping[str, Sequence[int]],
        alignment: int,
        forks: Sequence[Fork],
    ) -> None:
        self.graph, self.kernels, self.switches, self.pack = graph, kernels, switches, pack
        self.scratch, self.alignment = scratch, alignment
        self.plan: MemoryPlan = plan_memory(
            graph, self._overwritable(), self._scratch_buffers(), alignment, forks
        )
        self.used: dict[str, int] = {}  # key -> position among the kernels
        self.constants: list[Array] = []
        self.offsets: dict[str, int] = {}  # SHA-256 of a constant's bytes -> where they begin
        self.size = 0
        self.packed: dict[tuple[str, ...], Sequence[Array]] = {}
        # Of tensors inside of scans and branches that lie in others.
        self.inner: dict[str, Place] = {}

    def _overwritable(self) -> dict[str, tuple[str, ...]]:
        """The inputs whose memory each node's result may have, whichever kernel computes it.

        None that the node reads under another name too, of which the kernel knows nothing.
        """
        inputs = {}
        for node in self.graph.expressions:
            every = [self.kernels[key].overwritable for key in self._keys(node)]
            roots = [self.graph.root(tensor.name) for tensor in node.inputs]
            inputs[node.outputs[0]] = tuple(
                roots[place]
                for place in every[0]
                if all(place in places for places in every) and roots.count(roots[place]) == 1
            )
        return inputs

    def _keys(self, node: Expression) -> list[str]:
        """The keys of the kernels that may compute a node."""
        return [workload_of(node, self.graph).key, *self.switches.get(node.outputs[0], ())]

    def _scratch_buffers(self) -> dict[str, dict[str, int]]:
        """Names and bytes of the buffers that kernels use besides, by the nodes' first outputs."""
        return {
            node.outputs[0]: {
                _scratch_name(node, key, number): nbytes
                for key in self._keys(node)
                for number, nbytes in enumerate(self.scratch.get(key, ()))
            }
            for node in self.graph.expressions
        }

    def forked(self, forks: Sequence[Fork]) -> tuple[Steps, ...]:
        """The steps of the graph, with those of each fork in lanes."""
        steps: list[Steps] = []
        nodes, done = self.graph.nodes, 0
        for fork in forks:
            steps += self.steps(nodes[done : fork.start], depth=0)
            lanes = ([nodes[position] for position in lane] for lane in fork.lanes)
            steps.append(Concurrent(lanes=tuple(self.steps(lane, depth=0) for lane in lanes)))
            done = fork.end
        return (*steps, *self.steps(nodes[done:], depth=0))

    def steps(self, nodes: Sequence[Node], depth: int) -> tuple[Steps, ...]:
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
            condition=self.place(branch.condition),
            then=self._side(branch, branch.then, depth),
            other=self._side(branch, branch.other, depth),
        )

    def _side(self, branch: Branch, side: Side, depth: int) -> tuple[Steps, ...] | Failure:
        if side.refusal:
            return Failure(reason=side.refusal)
        in_place = side.in_place
        for number, name in in_place.items():
            self.inner[name] = self.place(branch.results[number].name)
        steps = self.steps(side.nodes, depth)
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
                    source=self.place(name) if out else slices[name],
                    destination=slices[name] if out else self.place(name),
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
            condition=None if scan.condition is None else self.place(scan.condition),
            reads=tuple(reads),
            steps=self.steps(scan.body, depth + 1),
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
        destination = self.place(tensor.name)
        return Move(source=self.place(source), destination=destination, nbytes=tensor.nbytes)

    def _slice(self, scan: Scan, name: str, depth: int) -> Place:
        window, nbytes = scan.windows[name], scan.shapes[name].nbytes
        whole = self.place(window.tensor)
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
        outputs = [self.place(name) for name in node.outputs]
        outputs += [
            self.place(_scratch_name(node, key, number))
            for number in range(len(self.scratch.get(key, ())))
        ]
        if kernel.prepack is None:
            return Step(kernel=position, buffers=(*(self.place(name) for name in names), *outputs))
        packed_arrays = self._packed(
            key, kernel, kernel.prepack, [names[place] for place in kernel.prepack.constants]
        )
        passed: list[Place] = []
        for place in kernel.prepack.passed:
            passed.append(
                self.place(names[place])
                if place < len(names)
                else self.embedded(packed_arrays[place - len(names)])
            )
        return Step(kernel=position, buffers=(*passed, *outputs))

    def place(self, name: str) -> Place:
        root = self.graph.root(name)
        if root in self.inner:
            return self.inner[root]
        place = self.plan.places[root]
        return self.embedded(self.graph.constants[root]) if place.kind == "constant" else place

    def embedded(self, array: Array) -> Place:
        """The place of an array among the library's constants; equal bytes share one."""
        digest = sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        if digest not in self.offsets:
            self.offsets[digest] = self.size
            self.constants.append(array)
            self.size += padded(array.nbytes, self.alignment)
        return Place(kind="constant", position=self.offsets[digest])

    def _packed(
        self, key: str, kernel: ExportKernel, prepack: Prepack, names: Sequence[str]
    ) -> Sequence[Array]:
        """The constants in the layout that the kernel wants."""
        cache_key = (key, *names)
        if cache_key not in self.packed:
            given = [
                self.graph.constants[name].reshape(kernel.inputs[place].shape)
                for name, place in zip(names, prepack.constants, strict=True)
            ]
            self.packed[cache_key] = self.pack(key, kernel, prepack, given)
        return self.packed[cache_key]


def _scratch_name(node: Expression, key: str, number: int) -> str:
    """A name that no tensor has."""
    return f"{node.outputs[0]}\0{key}\0{number}"


def write_constants(layout: Layout, file: BinaryIO) -> None:
    """Writes the constants as they lie one after the other."""
    for array in layout.constants:
        file.write(np.ascontiguousarray(array).tobytes())
        file.write(bytes(padded(array.nbytes, layout.alignment) - array.nbytes))

"""A model as one function on a GPU: kernels, the steps of a call, constants.

A step waits for those whose buffers it uses, and for no others, so that independent
kernels may run at the same time. Scans are written out. A GPU's graph has neither
branches nor an end that is computed, so models with these are refused.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.export.kernel import ExportKernel
from tuner.models.errors import ModelRefused
from tuner.models.graph import Array, Graph
from tuner.models.library.layout import Layout, layout_of, padded, write_constants
from tuner.models.library.library import ModelNumbers, exportable, model_arguments
from tuner.models.library.memory import Place
from tuner.models.library.step_order import StepOrder
from tuner.models.library.steps import Choice, Concurrent, Move, Repeat, Step, Steps
from tuner.models.nodes import Branch, Scan, calls, every_node
from tuner.runtime.cuda_model import (
    ALIGNMENT,
    CudaModel,
    DevicePlace,
    ModelCopy,
    ModelLaunch,
    ModelStep,
)
from tuner.runtime.cuda_module import CudaModule, nbytes, unpacked
from tuner.runtime.prepack import Prepack
from tuner.runtime.toolchain import LinkError
from tuner.target.target import Target

MOST_CALLS = 10_000  # of kernels in one call of a model, iterations of scans counted


def refuse(graph: Graph) -> None:
    """Raises ModelRefused for a model that a GPU's graph cannot compute, with the node's name."""
    for node in every_node(graph.nodes):
        if isinstance(node, Branch):
            raise ModelRefused(
                f"{node.name} chooses what is computed at run time, which a GPU's graph cannot; "
                f"give the values that decide it with --inputs, or tune for a CPU"
            )
        if isinstance(node, Scan) and node.condition is not None:
            raise ModelRefused(
                f"{node.name} ends by a condition at run time, which a GPU's graph cannot; give "
                f"the values that decide it with --inputs, or tune for a CPU"
            )
    count = sum(repeated for _, repeated in calls(graph.nodes))
    if count > MOST_CALLS:
        raise ModelRefused(
            f"a call of the model is {count} calls of kernels, scans written out; on a GPU it may "
            f"be {MOST_CALLS}: use fewer iterations, or tune for a CPU"
        )
    labels = {tensor.name: label for tensor, label in zip(graph.inputs, graph.labels, strict=False)}
    for name in graph.fixed:
        raise ModelRefused(
            f"input {labels[name]} is fixed at its value, which a call on a GPU does not compare; "
            f"make it a constant of the file, or tune for a CPU"
        )
    for label in graph.bounded:
        raise ModelRefused(
            f"output {label} has an extent that depends on values; on a GPU all extents are "
            f"fixed: tune for a CPU"
        )


def cuda_model_kernel(
    graph: Graph,
    kernels: Mapping[str, ExportKernel],
    target: Target,
    threads: int,
    symbol: str,
    numbers: ModelNumbers,
) -> ExportKernel:
    """The model as one kernel, whose code is a packed `CudaModel`.

    `kernels` has the kernel of each workload, by its key; their code are packed modules.
    Raises ModelRefused as `refuse` does, and KeyError for a workload without a kernel.
    """
    refuse(graph)
    modules, layout = _laid_out(graph, kernels)
    arguments = model_arguments(graph)
    constants = io.BytesIO()
    write_constants(layout, constants)
    model = CudaModel(
        symbol=symbol,
        inputs=tuple(argument.tensor for argument in arguments if argument.role == "in"),
        outputs=tuple(argument.tensor for argument in arguments if argument.role == "out"),
        kernels=tuple(
            replace(modules[key], symbol=f"{symbol}_{number}")
            for number, key in enumerate(layout.keys)
        ),
        steps=_Steps(layout, [modules[key] for key in layout.keys], len(graph.inputs)).made(),
        constants=constants.getvalue(),
        memory_bytes=layout.constant_bytes + layout.arena_bytes,
    )
    model.check()
    return exportable(
        graph,
        kernels,
        target,
        threads,
        symbol,
        numbers,
        arguments=arguments,
        object_code=model.pack(),
    )


def expressions_of_steps(
    graph: Graph, kernels: Mapping[str, ExportKernel]
) -> tuple[int | None, ...]:
    """Of each step of the model the number of its expression; None of a copy."""
    modules, layout = _laid_out(graph, kernels)
    made = _Steps(layout, [modules[key] for key in layout.keys], len(graph.inputs))
    made.made()
    return tuple(made.expressions)


def _laid_out(
    graph: Graph, kernels: Mapping[str, ExportKernel]
) -> tuple[Mapping[str, CudaModule], Layout]:
    """The kernels' modules by the workloads' keys, and the layout of the model."""
    modules = {key: unpacked(kernel.object_code) for key, kernel in kernels.items()}
    layout = layout_of(
        graph,
        kernels,
        switches={},
        pack=_pack,
        scratch={key: [nbytes(t) for t in module.workspace] for key, module in modules.items()},
        alignment=ALIGNMENT,
    )
    return modules, layout


def _pack(key: str, kernel: ExportKernel, prepack: Prepack, given: Sequence[Array]) -> list[Array]:
    raise LinkError("a GPU's kernels pack no constants")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Access:
    """What a step does to a buffer."""

    place: DevicePlace
    nbytes: int
    writes: bool


class _Steps:
    """The steps of a layout, scans written out, each with those that it waits for."""

    def __init__(self, layout: Layout, modules: Sequence[CudaModule], inputs: int) -> None:
        self.layout, self.modules, self.inputs = layout, modules, inputs
        self.order = StepOrder()
        self.steps: list[ModelStep] = []
        self.expressions: list[int | None] = []  # of each step; None of a copy
        self.numbers: dict[int, int] = {}  # of the layout's calls, by their identity

    def made(self) -> tuple[ModelStep, ...]:
        for step, iterations in _written_out(self.layout.steps, ()):
            if isinstance(step, Step):
                self.call(step, iterations)
            else:
                self.copy(
                    self.place(step.source, iterations),
                    self.place(step.destination, iterations),
                    step.nbytes,
                )
        for copy in self.layout.copies:
            destination = DevicePlace(kind="argument", position=self.inputs + copy.output)
            self.copy(self.place(copy.source, ()), destination, copy.nbytes)
        return tuple(self.steps)

    def call(self, step: Step, iterations: tuple[int, ...]) -> None:
        """A step for each launch of the kernel."""
        module = self.modules[step.kernel]
        expression = self.numbers.setdefault(id(step), len(self.numbers))
        places = tuple(self.place(place, iterations) for place in step.buffers)
        by_name = {
            tensor.name: _Access(
                place=place, nbytes=nbytes(tensor), writes=number >= len(module.inputs)
            )
            for number, (tensor, place) in enumerate(zip(module.buffers, places, strict=True))
        }
        for number, launch in enumerate(module.launches):
            after = self.after([by_name[name] for name in launch.buffers])
            self.expressions.append(expression)
            self.steps.append(
                ModelLaunch(kernel=step.kernel, launch=number, places=places, after=after)
            )

    def copy(self, source: DevicePlace, destination: DevicePlace, nbytes: int) -> None:
        after = self.after(
            [
                _Access(place=source, nbytes=nbytes, writes=False),
                _Access(place=destination, nbytes=nbytes, writes=True),
            ]
        )
        self.expressions.append(None)
        self.steps.append(
            ModelCopy(source=source, destination=destination, nbytes=nbytes, after=after)
        )

    def after(self, accesses: Sequence[_Access]) -> tuple[int, ...]:
        """The steps that the next one waits for."""
        return self.order.add(
            [
                (
                    access.place.position if access.place.kind == "argument" else None,
                    access.place.offset,
                    access.place.offset + access.nbytes,
                    access.writes,
                )
                for access in accesses
            ]
        )

    def place(self, place: Place, iterations: tuple[int, ...]) -> DevicePlace:
        """Where a buffer lies in an iteration of each scan around it, the outermost first."""
        offset = place.offset + sum(
            number * stride for number, stride in zip(iterations, place.strides, strict=False)
        )
        match place.kind:
            case "input":
                return DevicePlace(kind="argument", position=place.position, offset=offset)
            case "output":
                position = self.inputs + place.position
                return DevicePlace(kind="argument", position=position, offset=offset)
            case "constant":
                return DevicePlace(kind="memory", offset=place.position + offset)
            case _:
                start = padded(self.layout.constant_bytes, ALIGNMENT)
                return DevicePlace(kind="memory", offset=start + place.position + offset)


def _written_out(
    steps: Sequence[Steps], iterations: tuple[int, ...]
) -> Iterator[tuple[Step | Move, tuple[int, ...]]]:
    """Calls and copies in order, with the numbers of the iterations around them."""
    for step in steps:
        if isinstance(step, Repeat):
            yield from ((move, iterations) for move in step.before)
            for number in range(step.count):
                inside = (*iterations, number)
                yield from ((move, inside) for move in step.reads)
                yield from _written_out(step.steps, inside)
                yield from ((move, inside) for move in step.writes)
        elif isinstance(step, Concurrent):
            for lane in step.lanes:
                yield from _written_out(lane, iterations)
        elif isinstance(step, Choice):
            raise ModelRefused("a GPU's graph cannot choose what is computed")
        else:
            yield step, iterations

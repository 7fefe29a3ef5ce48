"""What the backend takes of a model, and why it leaves the rest to PyTorch."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tuner.errors import TunerError, UsageError
from tuner.models.from_torch.region import is_free
from tuner.models.library.region_cache import RaceResult
from tuner.torch.compiling import by_pytorch, compiled
from tuner.torch.layouts import layouts_of
from tuner.torch.options import Options, options_from
from tuner.torch.partition import EagerCall, Node, Partition, Region
from tuner.torch.rebuilding import Function
from tuner.torch.tuning import cache_of, key_of, settings_of
from tuner.units import seconds


@dataclass(frozen=True, kw_only=True)
class RegionSummary:
    """One region of a model."""

    operators: Mapping[str, int]  # calls of each, e.g. of aten.mm.default
    kernels: int  # nodes of its graph of expressions, before fusion
    inputs: int
    outputs: int
    race: RaceResult | None  # of its kept library with PyTorch; None where there was none


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What the backend does with a model. Its text is a table of this."""

    graphs: int  # of ATen operators: those of Dynamo, forward and backward
    graph_breaks: Mapping[str, int]  # by Dynamo's reason
    regions: tuple[RegionSummary, ...]
    left: tuple[EagerCall, ...]

    @property
    def operators(self) -> Mapping[str, int]:
        """Calls of each operator that lie in regions."""
        return sum((Counter(region.operators) for region in self.regions), Counter[str]())

    @property
    def share(self) -> float:
        """Share of the calls of operators, views aside, that lie in regions."""
        ours = sum(self.operators.values())
        return ours / max(1, ours + len(self.left))

    def __str__(self) -> str:
        ours = sum(self.operators.values())
        lines = [
            f"{self.graphs} graphs, {sum(self.graph_breaks.values())} graph breaks, "
            f"{len(self.regions)} regions; {ours} of {ours + len(self.left)} calls in regions"
        ]
        for number, region in enumerate(self.regions):
            lines.append(
                f"region {number}: {sum(region.operators.values())} calls, {region.kernels} nodes, "
                f"{region.inputs} inputs, {region.outputs} outputs{_raced(region.race)}"
            )
        lines += [f"in regions: {name} ×{count}" for name, count in _sorted(self.operators)]
        reasons = Counter((left.operator, left.reason) for left in self.left)
        for (name, reason), count in sorted(reasons.items()):
            lines.append(f"left to PyTorch: {name} ×{count}: {reason}")
        lines += [f"graph break ×{n}: {reason}" for reason, n in _sorted(self.graph_breaks)]
        return "\n".join(lines)


def _raced(race: RaceResult | None) -> str:
    if race is None:
        return ""
    used = "its library is used" if race.is_faster else "PyTorch computes it"
    return f"; library {seconds(race.library_s)}, PyTorch {seconds(race.pytorch_s)} a call: {used}"


def _sorted(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))


def explain(
    model: Callable[..., Any],
    inputs: Any = (),
    *,
    backward: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Explanation:
    """What `torch.compile(model, backend="tuner", options=options)` does, without tuning
    anything.

    `inputs` is a tensor or a sequence of the model's arguments. The model is called
    once, with what it does besides its result. With `backward` its outputs are
    differentiated too. Other compiled models are compiled anew at their next call.
    Raises UsageError for options that the backend does not have.
    """
    chosen = options_from(None, options)
    parts: list[Partition] = []
    breaks: Counter[str] = Counter()
    arguments = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)

    def backend(module: torch.fx.GraphModule, given: Sequence[Any]) -> Function:
        end = module.compile_subgraph_reason
        if end.graph_break:
            breaks[end.reason.splitlines()[0]] += 1
        return compiled(
            module,
            given,
            by_pytorch,
            lambda traced, cut: parts.append(cut),
            calls=1,
        )

    torch._dynamo.reset()
    try:
        results = torch.compile(model, backend=backend)(*arguments)
        if backward:
            _differentiate(results)
    finally:
        torch._dynamo.reset()
    return Explanation(
        graphs=len(parts),
        graph_breaks=breaks,
        regions=tuple(_summary(region, chosen) for cut in parts for region in cut.regions),
        left=tuple(left for cut in parts for left in cut.left),
    )


def _summary(region: Region, options: Options) -> RegionSummary:
    part = region.part
    return RegionSummary(
        operators=Counter(str(node.target) for node in part.nodes if computes(node)),
        kernels=len(region.graph.nodes),
        inputs=len(part.inputs),
        outputs=len(part.outputs),
        race=kept_race(region, options),
    )


def kept_race(region: Region, options: Options) -> RaceResult | None:
    """The race of a region's kept library with PyTorch; None where there was none."""
    settings = settings_of(options, on_gpu=layouts_of(region).is_on_gpu)
    try:
        return cache_of(options).race(key_of(region.packed, settings))
    except TunerError:  # of a GPU that the driver does not have
        return None


def computes(node: Node) -> bool:
    """Whether a call makes something new rather than a view or a part."""
    return node.target is not operator.getitem and not is_free(node)


def _differentiate(results: Any) -> None:
    """Runs the backward graphs of what a model gave, and keeps no gradients."""
    tensors = [
        tensor
        for tensor in tree_leaves(results)
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad
    ]
    if not tensors:
        raise UsageError(
            "the model's outputs have no gradient; explain it without backward=True, or with "
            "parameters or inputs that require one"
        )
    leaves = _leaves(tensors)
    torch.autograd.grad(tensors, leaves, [torch.ones_like(t) for t in tensors], allow_unused=True)


def _leaves(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What the tensors are computed from and has a gradient of its own."""
    leaves: dict[int, torch.Tensor] = {}
    waiting, visited = [tensor.grad_fn for tensor in tensors], set[Any]()
    while waiting:
        function = waiting.pop()
        if function is None or function in visited:
            continue
        visited.add(function)
        if hasattr(function, "variable"):
            leaves[id(function.variable)] = function.variable
        waiting += [before for before, _ in function.next_functions]
    return [*leaves.values()]

"""PyTorch's own samples of its operators through the backend of `torch.compile`.

    python -m benchmarks.torch.samples [--only TEXT] [--each 6] [--part 1/8] [--seed 0]

The samples are those of OpInfo (`torch.testing._internal`), float32, on the CPU: what PyTorch
tests its operators with, odd shapes, strides and arguments among them; `--each` of every
operator, evenly spaced. Each is a graph of one call, taken apart and cut as the backend does, with
regions evaluated by the reference evaluator in float64. What PyTorch's tracing does not take as a
graph goes through Dynamo, as a user's code would. Operators are in an order drawn by the seed;
`--part 1/8` runs the first of eight shares of them, so that a long run can be cut. One JSON line
for each operator, a summary last. Left out are samples that differ from call to call.
"""

from __future__ import annotations

import argparse
import json
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from benchmarks.torch.judging import NotRun, error_of, judged, limited, tensors_of
from tests.support.torch_regions import compile_evaluated, evaluated
from tuner.torch.compiling import compiled
from tuner.torch.partition import Partition

Function = Callable[..., Any]


class Case:
    """One sample: a function of its tensors."""

    def __init__(self, operator: Any, sample: Any) -> None:
        given = (sample.input, sample.args, sample.kwargs)
        self.leaves, self.form = tree_flatten(given)
        self.operator = operator.get_op()
        self.tensors = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        """The tensors that the operator gives."""
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        x, arguments, named = tree_unflatten(leaves, self.form)
        return tuple(tensors_of(self.operator(x, *arguments, **named)))

    def copies(self, convert: Function = lambda tensor: tensor) -> list[Any]:
        return [convert(_copy(tensor)) for tensor in self.tensors]


def _copy(tensor: Any) -> Any:
    """A tensor of its own with the same strides."""
    if tensor.layout != torch.strided:
        return tensor.detach().clone()
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return tensor.detach().clone() if 0 in tensor.stride() else copy.copy_(tensor.detach())


def cases(operator: Any, each: int) -> Iterator[Case]:
    samples = [*operator.sample_inputs("cpu", torch.float32)]
    step = max(1, len(samples) // each)
    for sample in samples[::step][:each]:
        yield Case(operator, sample)


def verdict(case: Case) -> str:
    """How a sample fares: in a region, in parts, by PyTorch, or wrong with its error.
    Raises NotRun for one that PyTorch does not compute, or not the same each time."""
    try:
        right, again = (_seeded(case, case.copies()) for _ in range(2))
    except Exception as reason:
        raise NotRun(f"PyTorch itself raises {type(reason).__name__}") from reason
    if any(error_of(a, b) > 0 for a, b in zip(right, again, strict=True) if a.layout == b.layout):
        raise NotRun("it differs from call to call")
    parts: list[Partition] = []
    try:
        got = _as_graph(case, parts)
    except Exception:  # it is no graph to PyTorch
        torch._dynamo.reset()
        function, backend = compile_evaluated(case)
        got = _seeded(function, case.copies())
        parts = backend.parts
    error, is_right = judged(got, right, lambda: _seeded(case, case.copies(_double)))
    if not is_right:
        return f"wrong by {error:.3g}"
    if not any(cut.regions for cut in parts):
        return "by PyTorch"
    return "in parts" if any(cut.left for cut in parts) else "in a region"


def _as_graph(case: Case, parts: list[Partition]) -> Sequence[Any]:
    def call(*tensors: Any) -> Any:
        return case(*tensors)

    graph = torch.fx.Graph()
    inputs = case.copies()
    places = [graph.placeholder(f"x{number}") for number in range(len(inputs))]
    graph.output(graph.call_function(call, tuple(places)))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    function = compiled(module, inputs, evaluated, lambda traced, cut: parts.append(cut))
    return _seeded(function, inputs)


def _seeded(function: Function, tensors: Sequence[Any]) -> Sequence[Any]:
    """What a function gives. OpInfo gives random operators the seed 42, and does so while a
    graph is traced, not where it runs."""
    torch.manual_seed(42)
    return tensors_of(function(*tensors))


def _double(tensor: Any) -> Any:
    return tensor.double() if tensor.is_floating_point() else tensor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of the operators' names")
    parser.add_argument("--each", type=int, default=6, help="samples of an operator, at most")
    parser.add_argument("--part", type=_part, default=(1, 1), help="of the operators, as 1/8")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=20, help="of each sample, at most")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415  # slow

    counts: Counter[str] = Counter()
    chosen = [
        operator
        for operator in op_db
        if given.only in _name(operator) and operator.supports_dtype(torch.float32, "cpu")
    ]
    random.Random(given.seed).shuffle(chosen)
    with torch.no_grad():
        for operator in chosen[given.part[0] - 1 :: given.part[1]]:
            verdicts = Counter(_verdicts(operator, given.each, given.seconds))
            counts.update(_kind(key) for key in verdicts.elements())
            print(json.dumps({"operator": _name(operator), **verdicts}), flush=True)
    print(json.dumps(counts))


def _part(text: str) -> tuple[int, int]:
    number, parts = map(int, text.split("/"))
    if not 1 <= number <= parts:
        raise ValueError(text)
    return number, parts


def _name(operator: Any) -> str:
    return ".".join(filter(None, (operator.name, operator.variant_test_name)))


def _verdicts(operator: Any, each: int, seconds: int) -> Iterator[str]:
    for case in cases(operator, each):
        try:
            with limited(seconds):
                yield verdict(case)
        except NotRun as error:
            yield f"not run: {error}"
        except Exception as error:  # of the backend: the table must show it
            yield f"raised {type(error).__name__}: {error}"[:300]


def _kind(text: str) -> str:
    return next((kind for kind in ("wrong", "raised", "not run") if text.startswith(kind)), text)


if __name__ == "__main__":
    main()

"""What `torch.compile(model, backend="tuner")` takes of GraphNet's graphs.

    python -m benchmarks.torch.graphs SAMPLES [--count 60] [--seed 0] [--seconds S]

SAMPLES is the folder of that name of GraphNet (arXiv:2510.24035): a graph of Dynamo's with the
shapes, means and deviations of its tensors in each folder. The files are executed, so they must
be trusted. Graphs are drawn by the seed; left out are those with more than LARGEST elements in
their tensors or more than MOST_WORK operations in products, which a small machine cannot
evaluate, and those that do not run on a CPU. Tensors are normal numbers with the described means
and a fifth of the described deviations, as GraphNet's own runner draws them; variances are
positive. Regions are evaluated by the reference evaluator in float64. One JSON line for each
graph, as of `problems`; a summary last.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
import types
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.torch.judging import NotRun, doubled, judged, limited, tensors_of
from tests.support.torch_regions import compile_evaluated
from tuner.torch.explanation import computes

LARGEST = 1 << 23  # elements of a graph's tensors
MOST_WORK = 300_000_000  # floating point operations of a graph's products


class _OnCpu(ast.NodeTransformer):
    """Puts a graph's own tensors on the CPU."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) and re.fullmatch(r"cuda(:\d+)?", node.value):
            return ast.Constant("cpu")
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "device":
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "index"]
        return node


def described(folder: Path) -> dict[str, Mapping[str, Any]]:
    """What the folder says of each tensor of its graph, by name."""
    namespace: dict[str, Any] = {}
    exec((folder / "weight_meta.py").read_text("utf-8"), namespace)
    metas = [vars(value) for value in namespace.values() if isinstance(value, type)]
    return {meta["name"]: meta for meta in metas}


def elements(meta: Mapping[str, Any]) -> int:
    return int(torch.Size(meta["shape"]).numel())


def drawn(meta: Mapping[str, Any]) -> Any:
    """A tensor as described."""
    dtype = getattr(torch, meta["dtype"].rpartition(".")[2])
    shape, low, high = meta["shape"], meta.get("min_val"), meta.get("max_val")
    if meta.get("data") is not None:
        return torch.tensor(meta["data"], dtype=dtype).reshape(shape)
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(low or 0, (high or 0) + 1, shape, dtype=dtype)
    mean, deviation = meta.get("mean") or 0, meta.get("std")
    tensor = torch.randn(shape) * (0.1 if deviation is None else deviation) * 0.2 + mean
    if "var" in meta["name"].rpartition("buffers")[2]:
        tensor = tensor.abs() + 1e-3
    return (
        tensor.nan_to_num().clamp(low, high).to(dtype)
        if (low, high) != (None, None)
        else (tensor.nan_to_num().clamp(-100, 100).to(dtype))
    )


def graph(folder: Path) -> tuple[Any, list[Any]]:
    """The graph as a function of tensors, and its inputs. Raises NotRun."""
    metas = described(folder)
    count = sum(map(elements, metas.values()))
    if count > LARGEST:
        raise NotRun(f"its tensors have {count} elements")
    tree = _OnCpu().visit(ast.parse((folder / "model.py").read_text("utf-8")))
    module = types.ModuleType(folder.name)
    exec(compile(ast.fix_missing_locations(tree), str(folder / "model.py"), "exec"), vars(module))
    torch.manual_seed(0)
    code = module.GraphModule.forward.__code__
    names = code.co_varnames[1 : code.co_argcount]
    inputs = [drawn(metas[name]) for name in names]
    hints = module.GraphModule.forward.__annotations__
    inputs = [
        value.item() if hints.get(name) in (torch.SymInt, int) else value
        for name, value in zip(names, inputs, strict=True)
    ]
    return module.GraphModule().eval(), inputs


def measured(folder: Path) -> dict[str, Any]:
    """The line of one graph."""
    with torch.no_grad():
        try:
            model, inputs = graph(folder)
            with FlopCounterMode(display=False) as counter:
                right = called(model, inputs)
        except Exception as reason:
            raise NotRun(f"{type(reason).__name__}: {reason}") from reason
        if counter.get_total_flops() > MOST_WORK:
            raise NotRun(f"it has {counter.get_total_flops()} operations")
        compiled, backend = compile_evaluated(model)
        got = called(compiled, inputs)
        error, is_right = judged(got, right, lambda: called(model, doubled(inputs)))
    ours = sum(computes(node) for region in backend.regions for node in region.part.nodes)
    return {
        "calls": ours + len(backend.left),
        "in_regions": ours,
        "regions": len(backend.regions),
        "error": error,
        "right": is_right,
        "left": dict(Counter(f"{left.operator}: {left.reason}" for left in backend.left)),
    }


def called(model: Any, inputs: Sequence[Any]) -> list[Any]:
    """The tensors that a model gives; it may write its inputs."""
    torch.manual_seed(0)
    own = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    return tensors_of(model(*own))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("samples", type=Path)
    parser.add_argument("--count", type=int, default=60, help="graphs that are run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of the folders' names")
    parser.add_argument("--seconds", type=int, default=120, help="of each graph, at most")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    folders = sorted(path.parent for path in given.samples.rglob("weight_meta.py"))
    random.Random(given.seed).shuffle(folders)
    counts: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for folder in folders:
        name = str(folder.relative_to(given.samples))
        if given.only not in name:
            continue
        if counts["run"] == given.count:
            break
        try:
            with limited(given.seconds):
                line = measured(folder)
        except NotRun as error:
            line = {"not_run": str(error)[:200]}
            counts["not run"] += 1
        except Exception as error:  # of the backend: the table must show it
            line = {"raised": f"{type(error).__name__}: {error}"[:400]}
            counts.update(["run", "raised"])
        else:
            counts.update({"run": 1, "wrong": not line["right"]})
            counts.update({name: line[name] for name in ("calls", "in_regions", "regions")})
            left.update(reason.partition(":")[0] for reason in line["left"])
        print(json.dumps({"graph": name, **line}), flush=True)
    print(json.dumps({**counts, "left": dict(left.most_common())}))


if __name__ == "__main__":
    main()

"""What `torch.compile(model, backend="tuner")` takes of GraphNet's graphs.

    python -m benchmarks.torch.graphs SAMPLES [--count 60] [--seed 0] [--by libraries]
    python -m benchmarks.torch.graphs SAMPLES --race 120 --elements 100_000_000 --work 1e10

SAMPLES is the folder of that name of GraphNet (arXiv:2510.24035): a graph of Dynamo's with the
shapes, means and deviations of its tensors in each folder. The files are executed, so they must
be trusted. Graphs are drawn by the seed; left out are those with more than `--elements` in their
tensors or more than `--work` operations in products, which a small machine cannot evaluate, and
those that do not run on a CPU. Tensors are normal numbers with the described means and a fifth of
the described deviations, as GraphNet's own runner draws them; variances are positive. Regions
are computed by the reference evaluator in float64, or by libraries with default schedules. One
JSON line for each graph, as of `problems`; a summary last.

With `--race` regions are tuned for so many seconds instead, by PyTorch's number of threads, and
the compiled model races with eager PyTorch, as inductor's does. The summary has S(t) of both.
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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

import tuner.torch  # noqa: F401  # the backend's name
from benchmarks.torch.apart import apart
from benchmarks.torch.judging import NotRun, doubled, judged, tensors_of
from benchmarks.torch.regions import COMPUTED_BY, Compiled, counted
from benchmarks.torch.scores import FAILED, TOLERANCES, Outcome, right_from, score
from tuner.torch.call import raced

LARGEST = 1 << 23  # elements of a graph's tensors that the evaluator can take
MOST_WORK = 300_000_000  # floating point operations of a graph's products, likewise


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is run of what is drawn."""

    elements: int
    work: float


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


def graph(folder: Path, limits: Limits) -> tuple[Any, list[Any]]:
    """The graph as a function of tensors, and its inputs. Raises NotRun."""
    try:
        metas = described(folder)
        count = sum(map(elements, metas.values()))
        if count > limits.elements:
            raise NotRun(f"its tensors have {count} elements")
        model, inputs = _made(folder, metas)
        with FlopCounterMode(display=False) as counter:
            called(model, inputs)
    except Exception as reason:
        raise NotRun(f"{type(reason).__name__}: {reason}") from reason
    if counter.get_total_flops() > limits.work:
        raise NotRun(f"it has {counter.get_total_flops()} operations")
    return model, inputs


def _made(folder: Path, metas: Mapping[str, Mapping[str, Any]]) -> tuple[Any, list[Any]]:
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


def measured(folder: Path, limits: Limits, by: str) -> dict[str, Any]:
    """The line of one graph."""
    with torch.no_grad():
        model, inputs = graph(folder, limits)
        compiled = Compiled(model, by)
        right, got = (called(function, inputs) for function in (model, compiled.function))
        own = copies(inputs)
        share = compiled.share_of_time(lambda: compiled.function(*own))
        error, is_right = judged(got, right, lambda: called(model, doubled(inputs)))
    left = compiled.backend.left
    return {
        **counted(compiled.backend),
        "share_of_time": round(share, 4),
        "error": error,
        "right": is_right,
        "left": dict(Counter(f"{call.operator}: {call.reason}" for call in left)),
    }


def raced_line(folder: Path, limits: Limits, seconds: float) -> dict[str, Any]:
    """The line of one graph, by inductor and by the tuner's backend."""
    options = {"tune": "now", "seconds": seconds}
    with torch.no_grad():
        model, inputs = graph(folder, limits)
        return {
            "inductor": vars(_outcome(model, inputs, backend="inductor")),
            "tuner": vars(_outcome(model, inputs, backend="tuner", options=options)),
        }


def _outcome(model: Any, inputs: Sequence[Any], **compiler: Any) -> Outcome:
    torch._dynamo.reset()
    compiled = torch.compile(model, **compiler)
    right = called(model, inputs)
    try:
        for _ in range(2):  # the first one tries the libraries
            got = called(compiled, inputs)
    except Exception:
        return FAILED
    own = copies(inputs)
    race = raced(partial(compiled, *own), partial(model, *own))
    return Outcome(speedup=race.pytorch_s / race.library_s, right_from=right_from(got, right))


def called(model: Any, inputs: Sequence[Any]) -> list[Any]:
    """The tensors that a model gives; it may write its inputs."""
    torch.manual_seed(0)
    return tensors_of(model(*copies(inputs)))


def copies(inputs: Sequence[Any]) -> list[Any]:
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("samples", type=Path)
    parser.add_argument("--count", type=int, default=60, help="graphs that are run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of the folders' names")
    parser.add_argument("--by", choices=COMPUTED_BY, default="evaluator")
    parser.add_argument("--race", type=float, help="tune for so many seconds, and race")
    parser.add_argument("--elements", type=int, default=LARGEST, help="of tensors, at most")
    parser.add_argument("--work", type=float, default=MOST_WORK, help="of products, at most")
    parser.add_argument("--seconds", type=int, default=120, help="of each graph, at most")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    limits = Limits(elements=given.elements, work=given.work)
    folders = sorted(path.parent for path in given.samples.rglob("weight_meta.py"))
    random.Random(given.seed).shuffle(folders)
    lines: list[dict[str, Any]] = []
    not_run = 0
    for folder in folders:
        name = str(folder.relative_to(given.samples))
        if given.only not in name:
            continue
        if len(lines) == given.count:
            break
        if given.race is None:
            line = apart(measured, folder, limits, given.by, seconds=given.seconds)
        else:
            line = apart(
                raced_line, folder, limits, given.race, seconds=given.seconds + 4 * given.race
            )
        if "not_run" in line:
            not_run += 1
        else:
            lines.append(line)
        print(json.dumps({"graph": name, **line}), flush=True)
    summary = covered(lines) if given.race is None else scored(lines)
    print(json.dumps({"run": len(lines), "not run": not_run, **summary}))


def covered(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The summary of a table of regions."""
    fine = [line for line in lines if "raised" not in line]
    left = Counter(reason.partition(":")[0] for line in fine for reason in line["left"])
    return {
        "raised": len(lines) - len(fine),
        "wrong": sum(not line["right"] for line in fine),
        **{key: sum(line[key] for line in fine) for key in ("calls", "in_regions", "regions")},
        "share_of_time": sum(line["share_of_time"] for line in fine) / max(1, len(fine)),
        "left": dict(left.most_common()),
    }


def scored(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The summary of a table of races: S(t) by compiler and tolerance."""
    outcomes = {
        compiler: [Outcome(**line[compiler]) if compiler in line else FAILED for line in lines]
        for compiler in ("inductor", "tuner")
    }
    return {
        compiler: {f"S({t})": round(score(results, t), 3) for t in TOLERANCES} if results else {}
        for compiler, results in outcomes.items()
    }


if __name__ == "__main__":
    main()

"""GraphNet's samples (arXiv:2510.24035): a graph of Dynamo's in each folder, with the shapes,
means and deviations of its tensors, as a function and its inputs. The files are executed.
"""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.torch.judging import NotRun, tensors_of

TOO_LARGE = "too large"
_SHAPE = re.compile(r"^ +shape = \[([\d, \n]*)\]", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is run of what is drawn. `check_files` and `graph` raise NotRun beyond it."""

    elements: int  # of a graph's tensors
    work: float  # floating-point operations of its products
    nodes: int | None = None  # of Dynamo's graph, which say how long a compiler takes

    def check_files(self, folder: Path) -> None:
        """Refuses a graph by the text of its files, of which none is executed."""
        count = elements((folder / "weight_meta.py").read_text("utf-8"))
        if count > self.elements:
            raise NotRun(f"{TOO_LARGE}: its tensors have {count} elements")
        if self.nodes is None:
            return
        size = nodes((folder / "model.py").read_text("utf-8"))
        if size > self.nodes:
            raise NotRun(f"{TOO_LARGE}: it has {size} nodes")


def elements(text: str) -> int:
    """Of all tensors that the text of a `weight_meta.py` describes."""
    return sum(prod(map(int, re.findall(r"\d+", shape))) for shape in _SHAPE.findall(text))


def nodes(text: str) -> int:
    """Of the graph in the text of a `model.py`: assignments of what is computed."""
    return sum(
        isinstance(part, ast.Assign) and not isinstance(part.value, (ast.Constant, ast.Name))
        for part in ast.walk(ast.parse(text))
    )


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


class _Bounded(TorchDispatchMode):  # type: ignore[misc]  # PyTorch declares no type of it
    """Ends a graph that has more work than it may, before it is all done."""

    def __init__(self, counter: FlopCounterMode, most: float) -> None:
        super().__init__()
        self._counter, self._most = counter, most

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.check()
        return func(*args, **kwargs or {})

    def check(self) -> None:
        if self._counter.get_total_flops() > self._most:
            raise NotRun(f"{TOO_LARGE}: its products have more than {self._most:g} operations")


def graph(folder: Path, limits: Limits) -> tuple[Any, list[Any]]:
    """The graph as a function of tensors, and its inputs. It has passed `check_files`, and
    runs on a CPU. Raises NotRun."""
    try:
        model, inputs = _made(folder)
        counter = FlopCounterMode(display=False)
        with counter, _Bounded(counter, limits.work) as bounded:
            called(model, inputs)
        bounded.check()
    except Exception as reason:
        raise NotRun(f"{type(reason).__name__}: {reason}") from reason
    return model, inputs


def _made(folder: Path) -> tuple[Any, list[Any]]:
    metas = described(folder)
    path = folder / "model.py"
    tree = ast.fix_missing_locations(_OnCpu().visit(ast.parse(path.read_text("utf-8"))))
    module = types.ModuleType(folder.name)
    # This file's `annotations` would make texts of the graph's, which say what is a number.
    exec(compile(tree, str(path), "exec", dont_inherit=True), vars(module))
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


def called(model: Any, inputs: Sequence[Any]) -> list[Any]:
    """The tensors that a model gives; it may write its inputs."""
    torch.manual_seed(0)
    return tensors_of(model(*copies(inputs)))


def copies(inputs: Sequence[Any]) -> list[Any]:
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]

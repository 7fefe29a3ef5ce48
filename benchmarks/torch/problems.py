"""What `torch.compile(model, backend="tuner")` takes of a folder of problems.

    python -m benchmarks.torch.problems FOLDER [--only TEXT] [--seconds S]

A problem is a Python file in KernelBench's form (arXiv:2502.10517): a class `Model`, the functions
`get_inputs` and `get_init_inputs`, and sizes as constants of the module. The files are executed, so
they must be trusted. Sizes are cut by a power of two, the largest at which the model still
runs, so that a small machine can run them. Regions are evaluated by the reference evaluator in
float64: what is compared with PyTorch is which operators are in regions and what they mean, not
the compiler. One JSON line for each problem, with the share of its calls that lies in regions,
what is left and why, and the greatest error of an output; a summary last.
"""

from __future__ import annotations

import argparse
import ast
import json
import types
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.torch.judging import NotRun, doubled, judged, limited, tensors_of
from tests.support.torch_regions import compile_evaluated
from tuner.torch.explanation import computes

CUTS = (256, 128, 64, 32, 16, 8, 4, 2, 1)
SMALLEST = 8  # sizes up to this are left as they are
LARGEST = 1 << 28  # elements of a problem's inputs and parameters


class _Cut(ast.NodeTransformer):
    """Divides the sizes among a module's constants."""

    def __init__(self, by: int) -> None:
        self.by = by

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if type(node.value) is int and node.value > SMALLEST:
            return ast.Constant(max(SMALLEST, node.value // self.by))
        return node


def module_of(path: Path, by: int) -> types.ModuleType:
    """The problem with its sizes divided. Only assignments of the module are changed."""
    tree = ast.parse(path.read_text("utf-8"))
    tree.body = [
        _Cut(by).visit(part) if isinstance(part, ast.Assign) else part for part in tree.body
    ]
    module = types.ModuleType(path.stem)
    exec(compile(ast.fix_missing_locations(tree), str(path), "exec"), module.__dict__)
    return module


def problem(path: Path) -> tuple[Any, Sequence[Any], int]:
    """The model, its inputs and the cut. Raises NotRun."""
    reason: Exception | str = "its inputs are too large"
    for by in CUTS:
        try:
            with torch.device("meta"):
                sized = module_of(path, by)
                shapes = [*sized.get_inputs(), *sized.Model(*sized.get_init_inputs()).parameters()]
            if sum(t.numel() for t in shapes if isinstance(t, torch.Tensor)) > LARGEST:
                continue
            torch.manual_seed(0)
            module = module_of(path, by)
            model, inputs = module.Model(*module.get_init_inputs()).eval(), module.get_inputs()
            model(*inputs)
        except Exception as error:  # sizes that do not fit together
            reason = error
            continue
        return model, inputs, by
    raise NotRun(f"{reason}")


def measured(path: Path) -> dict[str, Any]:
    """The line of one problem."""
    with torch.no_grad():
        model, inputs, by = problem(path)
        compiled, backend = compile_evaluated(model)
        right, got = (_called(function, inputs) for function in (model, compiled))
        error, is_right = judged(got, right, lambda: _called(model.double(), doubled(inputs)))
    ours = sum(computes(node) for region in backend.regions for node in region.part.nodes)
    return {
        "cut": by,
        "regions": len(backend.regions),
        "whole": not backend.left and len(backend.regions) > 0,
        "calls": ours,
        "error": error,
        "right": is_right,
        "left": dict(Counter(f"{left.operator}: {left.reason}" for left in backend.left)),
    }


def _called(model: Any, inputs: Sequence[Any]) -> list[Any]:
    torch.manual_seed(0)  # models may draw numbers
    return tensors_of(model(*inputs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="part of the files' names")
    parser.add_argument("--seconds", type=int, default=60, help="of each problem, at most")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    counts: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for path in sorted(given.folder.glob("*.py")):
        if given.only not in path.name:
            continue
        try:
            with limited(given.seconds):
                line = measured(path)
        except NotRun as error:
            line = {"not_run": str(error)[:200]}
            counts["not run"] += 1
        except Exception as error:  # of the backend: the table must show it
            line = {"raised": f"{type(error).__name__}: {error}"[:400]}
            counts["raised"] += 1
        else:
            counts["whole" if line["whole"] else "in parts"] += 1
            counts["wrong"] += not line["right"]
            left.update(reason.partition(":")[0] for reason in line["left"])
        print(json.dumps({"problem": path.stem, **line}), flush=True)
    print(json.dumps({**counts, "left": dict(left.most_common())}))


if __name__ == "__main__":
    main()

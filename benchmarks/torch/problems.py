"""What `torch.compile(model, backend="tuner")` takes of a folder of problems.

    python -m benchmarks.torch.problems FOLDER... [--only TEXT] [--by libraries] [--seconds S]

A problem is a Python file in KernelBench's form (arXiv:2502.10517): a class `Model`, the functions
`get_inputs` and `get_init_inputs`, and sizes as constants of the module. The files are executed, so
they must be trusted. Sizes are cut by a power of two, the largest at which the model still
runs, so that a small machine can run them. Regions are computed by the reference evaluator in
float64, or by libraries with default schedules. One JSON line for each problem, with the share
of its operators' time that lies in regions, what is left and why, and the greatest error of an
output; a summary last. Recurrent layers are traced. Each problem is a process of its own.
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

from benchmarks.torch.apart import apart
from benchmarks.torch.judging import NotRun, doubled, judged, tensors_of
from benchmarks.torch.regions import COMPUTED_BY, Compiled, counted

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


def elements(path: Path, by: int) -> int:
    """Of the problem's inputs and parameters; 0 where they cannot be counted unmade."""
    try:
        with torch.device("meta"):
            module = module_of(path, by)
            tensors = [*module.get_inputs(), *module.Model(*module.get_init_inputs()).parameters()]
    except Exception:  # making it shows whether its sizes fit together
        return 0
    return sum(tensor.numel() for tensor in tensors if isinstance(tensor, torch.Tensor))


def problem(path: Path) -> tuple[Any, Sequence[Any], int]:
    """The model, its inputs and the cut. Raises NotRun."""
    reason: Exception | str = "its inputs are too large"
    for by in CUTS:
        if elements(path, by) > LARGEST:
            continue
        try:
            torch.manual_seed(0)
            module = module_of(path, by)
            model, inputs = module.Model(*module.get_init_inputs()).eval(), module.get_inputs()
            model(*inputs)
        except Exception as error:  # sizes that do not fit together
            reason = error
            continue
        return model, inputs, by
    raise NotRun(f"{reason}")


def measured(path: Path, by: str) -> dict[str, Any]:
    """The line of one problem."""
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        model, inputs, cut = problem(path)
        compiled = Compiled(model, by)
        right, got = (_called(function, inputs) for function in (model, compiled.function))
        share = compiled.share_of_time(lambda: _called(compiled.function, inputs))
        error, is_right = judged(got, right, lambda: _called(model.double(), doubled(inputs)))
    left = compiled.backend.left
    return {
        "cut": cut,
        **counted(compiled.backend.parts),
        "share_of_time": round(share, 4),
        "error": error,
        "right": is_right,
        "left": dict(Counter(f"{call.operator}: {call.reason}" for call in left)),
    }


def _called(model: Any, inputs: Sequence[Any]) -> list[Any]:
    torch.manual_seed(0)  # models may draw numbers
    return tensors_of(model(*inputs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--only", default="", help="part of the files' names")
    parser.add_argument("--by", choices=COMPUTED_BY, default="evaluator")
    parser.add_argument("--seconds", type=int, default=120, help="of each problem, at most")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    counts: Counter[str] = Counter()
    left: Counter[str] = Counter()
    share = 0.0
    for path in sorted(path for folder in given.folders for path in folder.glob("*.py")):
        if given.only not in path.name:
            continue
        line = apart(measured, path, given.by, seconds=given.seconds)
        kind = next((key for key in ("not_run", "raised") if key in line), "run")
        counts[kind] += 1
        if kind == "run":
            counts["whole" if line["regions"] and not line["left"] else "in parts"] += 1
            counts["wrong"] += not line["right"]
            left.update(reason.partition(":")[0] for reason in line["left"])
            share += line["share_of_time"]
        print(json.dumps({"problem": f"{path.parent.name}/{path.stem}", **line}), flush=True)
    summary = {"share_of_time": share / max(1, counts["run"]), "left": dict(left.most_common())}
    print(json.dumps({**counts, **summary}))


if __name__ == "__main__":
    main()

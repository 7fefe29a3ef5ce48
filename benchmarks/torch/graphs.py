"""What `torch.compile(model, backend="tuner")` takes of GraphNet's graphs.

    python -m benchmarks.torch.graphs SAMPLES [--count 60] [--seed 0] [--by libraries]
    python -m benchmarks.torch.graphs SAMPLES --race 120 --elements 100_000_000 --work 1e10

SAMPLES is the folder of that name of GraphNet (arXiv:2510.24035): a graph of Dynamo's with the
shapes, means and deviations of its tensors in each folder. The files are executed, so they must
be trusted. Graphs are drawn by the seed until `--count` have run; left out are those with more
than `--elements` in their tensors, more than `--nodes` or more than `--work` operations in
products, and those that do not run on a CPU. Tensors are normal numbers with the described means
and a fifth of the described deviations, as GraphNet's own runner draws them; variances are
positive. Regions are computed by the reference evaluator in float64, or by libraries with default
schedules. One JSON line for each graph, as of `problems`; a summary last.

With `--race` regions are tuned for so many seconds instead, by PyTorch's number of threads, and
the compiled model races with eager PyTorch, as inductor's does. Each compiler has a process of its
own, and `first_s` is what its first two calls took. A graph that one of them has not compiled
after `--seconds` is left out for both. The summary has S(t) of both.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.torch.apart import TOO_SLOW, apart
from benchmarks.torch.graphnet import Limits, called, copies, graph
from benchmarks.torch.judging import NotRun, doubled, judged
from benchmarks.torch.regions import COMPUTED_BY, Compiled, Tuned, counted
from benchmarks.torch.scores import (
    FAILED,
    TOLERANCES,
    Outcome,
    mean_speedup,
    right_from,
    score,
)
from tuner.torch.call import raced
from tuner.torch.notices import TunerWarning

LARGEST = 1 << 23  # elements of a graph's tensors that the evaluator can take
MOST_WORK = 300_000_000  # floating-point operations of a graph's products, likewise
COMPILERS = ("inductor", "tuner")

Line = dict[str, Any]


def measured(folder: Path, limits: Limits, by: str) -> Line:
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
        **counted(compiled.backend.parts),
        "share_of_time": round(share, 4),
        "error": error,
        "right": is_right,
        "left": dict(Counter(f"{call.operator}: {call.reason}" for call in left)),
    }


def raced_line(folder: Path, limits: Limits, tuning_s: float, *, seconds: float) -> Line:
    """The line of one graph, by inductor and by the tuner's backend."""
    line: Line = {}
    for compiler in COMPILERS:
        part = apart(compiled_line, folder, limits, compiler, tuning_s, seconds=seconds)
        if "not_run" in part:
            reason = part["not_run"]
            return {"not_run": f"{compiler} {reason}" if reason.startswith(TOO_SLOW) else reason}
        line[compiler] = part
    return line


def compiled_line(folder: Path, limits: Limits, compiler: str, tuning_s: float) -> Line:
    """What a backend of `torch.compile` makes of one graph. Raises what it raises."""
    with torch.no_grad(), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", TunerWarning)
        model, inputs = graph(folder, limits)
        if compiler != "tuner":
            return _raced(model, inputs, backend=compiler)
        backend = Tuned({"tune": "now", "seconds": tuning_s})
        line = _raced(model, inputs, backend=backend)
    return {
        **line,
        **counted(backend.parts),
        "libraries": backend.libraries,
        "warnings": [str(warning.message)[:400] for warning in warned],
    }


def _raced(model: Any, inputs: Sequence[Any], **compiler: Any) -> Line:
    torch._dynamo.reset()
    compiled = torch.compile(model, **compiler)
    right = called(model, inputs)
    begun_s = time.monotonic()
    for _ in range(2):  # the first one tries the libraries
        got = called(compiled, inputs)
    first_s = time.monotonic() - begun_s
    own = copies(inputs)
    race = raced(partial(compiled, *own), partial(model, *own))
    outcome = Outcome(speedup=race.pytorch_s / race.library_s, right_from=right_from(got, right))
    return {**vars(outcome), "eager_s": race.pytorch_s, "first_s": round(first_s, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("samples", type=Path)
    parser.add_argument("--count", type=int, default=60, help="graphs that are run")
    parser.add_argument("--within", type=float, help="draw no graph after so many seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of the folders' names")
    parser.add_argument("--by", choices=COMPUTED_BY, default="evaluator")
    parser.add_argument("--race", type=float, help="tune for so many seconds, and race")
    parser.add_argument("--elements", type=int, default=LARGEST, help="of tensors, at most")
    parser.add_argument("--nodes", type=int, help="of a graph, at most")
    parser.add_argument("--work", type=float, default=MOST_WORK, help="of products, at most")
    parser.add_argument(
        "--seconds",
        type=float,
        help="of each graph, at most, and of each compiler: 120, and 4 times those of tuning",
    )
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    limits = Limits(elements=given.elements, work=given.work, nodes=given.nodes)
    seconds = given.seconds or 120 + 4 * (given.race or 0)
    if given.race is None:
        line_of = partial(apart, measured, seconds=seconds)
        arguments: tuple[Any, ...] = (limits, given.by)
    else:
        line_of = partial(raced_line, seconds=seconds)
        arguments = (limits, given.race)
    folders = sorted(path.parent for path in given.samples.rglob("weight_meta.py"))
    random.Random(given.seed).shuffle(folders)
    lines: list[Line] = []
    not_run: Counter[str] = Counter()
    begun_s = time.monotonic()
    for folder in folders:
        name = str(folder.relative_to(given.samples))
        if given.only not in name:
            continue
        if len(lines) == given.count:
            break
        if given.within is not None and time.monotonic() - begun_s > given.within:
            break
        line = checked(line_of, folder, *arguments)
        if "not_run" in line:
            not_run[line["not_run"].partition(":")[0]] += 1
        else:
            lines.append(line)
        print(json.dumps({"graph": name, **line}), flush=True)
    summary = covered(lines) if given.race is None else scored(lines)
    drawn = len(lines) + not_run.total()
    print(json.dumps({"drawn": drawn, "run": len(lines), "not run": not_run, **summary}))


def checked(line_of: Callable[..., Line], folder: Path, limits: Limits, *more: Any) -> Line:
    """The line of a graph, for which no process begins where its files show that it is too
    large."""
    try:
        limits.check_files(folder)
    except NotRun as reason:
        return {"not_run": str(reason)}
    return line_of(folder, limits, *more)


def covered(lines: Sequence[Mapping[str, Any]]) -> Line:
    """The summary of a table of regions."""
    fine = [line for line in lines if "raised" not in line]
    left = Counter(reason.partition(":")[0] for line in fine for reason in line["left"])
    return {
        "raised": len(lines) - len(fine),
        "wrong": sum(not line["right"] for line in fine),
        **_summed(fine, ("calls", "in_regions", "regions")),
        "share_of_time": sum(line["share_of_time"] for line in fine) / max(1, len(fine)),
        "left": dict(left.most_common()),
    }


def scored(lines: Sequence[Mapping[str, Any]]) -> Line:
    """The summary of a table of races: S(t) by compiler and tolerance, how many graphs are right
    from which tolerance on, and the mean speedup of those."""
    summary: Line = {}
    for compiler in COMPILERS if lines else ():
        fine = [line[compiler] for line in lines if "raised" not in line[compiler]]
        outcomes = [
            Outcome(speedup=part["speedup"], right_from=part["right_from"]) for part in fine
        ]
        is_right = [outcome.right_from < float("inf") for outcome in outcomes]
        failed = [FAILED] * (len(lines) - len(fine))
        summary[compiler] = {
            "right": {t: sum(outcome.right_from <= t for outcome in outcomes) for t in TOLERANCES},
            "wrong": is_right.count(False),
            "raised": len(failed),
            "mean_speedup": round(mean_speedup(outcomes), 3) if any(is_right) else None,
            **{f"S({t})": round(score([*outcomes, *failed], t), 3) for t in TOLERANCES},
        }
    if lines:
        tuned = [line["tuner"] for line in lines if "raised" not in line["tuner"]]
        summary["tuner"] |= _summed(tuned, ("calls", "in_regions", "regions", "libraries"))
    return summary


def _summed(lines: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> dict[str, int]:
    return {key: sum(line[key] for line in lines) for key in keys}


if __name__ == "__main__":
    main()

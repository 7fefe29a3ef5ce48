"""A suite of products with matrices that others publish: finite elements and graphs.

    python -m benchmarks.kernels.patterns -o patterns.json --mtx libxsmm/samples --draw 50

Of the Matrix Market files below a folder it draws some by a seed, and adds the graphs that
networkx ships, where it is installed. LIBXSMM's samples (BSD-3-Clause) have operators of
PyFR and EDGE. A case says of its matrix what `pattern=FILE` says: extents, density, and the
distributions most like it. The operators are multiplied with very many columns, graphs with
the features of their nodes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import UsageError, WorkloadError
from tuner.workload.pattern_files import read_pattern
from tuner.workload.patterns import spec_of_pattern

COLUMNS, FEATURES = 2048, 64  # of the dense factor
GRAPHS = ("karate_club", "les_miserables", "davis_southern_women", "florentine_families")


def finite_elements(folder: Path, count: int, seed: int) -> list[dict[str, str]]:
    """Cases of drawn files below the folder, in the order of their paths.

    Files that are no pattern, such as operators without a place, are left out and said.
    Raises `UsageError` where there are fewer others.
    """
    paths = sorted(folder.rglob("*.mtx"))
    cases: dict[Path, dict[str, str]] = {}
    for number in np.random.default_rng(seed).permutation(len(paths)):
        if len(cases) == count:
            break
        path = paths[number]
        name = "_".join(path.relative_to(folder).with_suffix("").parts)
        try:
            cases[path] = _case(name, read_pattern(path), COLUMNS)
        except WorkloadError as error:
            print(f"{name} is left out: {error}")
    if len(cases) < count:
        raise UsageError(f"{folder} has {len(cases)} patterns, fewer than --draw {count}")
    return [cases[path] for path in sorted(cases)]


def graphs() -> Iterator[dict[str, str]]:
    """Cases of the graphs that networkx ships; none where it is missing."""
    if importlib.util.find_spec("networkx") is None:
        return
    import networkx  # noqa: PLC0415  # optional, of the extra "compare"

    for name in GRAPHS:
        graph = getattr(networkx, f"{name}_graph")()
        matrix = networkx.to_scipy_sparse_array(graph, dtype=np.float32)
        yield _case(name, matrix, FEATURES)


def _case(name: str, matrix: Any, columns: int) -> dict[str, str]:
    return {"name": name, "spec": spec_of_pattern(f"spmm:K={columns},index=int32", matrix)}


def suite_text(cases: Sequence[dict[str, str]], about: str) -> str:
    """The suite's file, a case a line."""
    lines = ",\n".join(f"    {json.dumps(case)}" for case in cases)
    return f'{{\n  "about": {json.dumps(about)},\n  "workloads": [\n{lines}\n  ]\n}}\n'


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A suite of published patterns")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--mtx", type=Path, help="a folder of Matrix Market files")
    parser.add_argument("--draw", type=int, default=50, help="of these files")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    cases = list(graphs())
    if given.mtx is not None:
        cases = [*finite_elements(given.mtx, given.draw, given.seed), *cases]
    about = "Patterns that others publish, as their extents, density and distributions."
    given.output.write_text(suite_text(cases, about))
    print(f"{given.output}: {len(cases)} workloads")


if __name__ == "__main__":
    main()

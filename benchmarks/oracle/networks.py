"""The sum of a network's kernels beside the network: what a table of latencies promises."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tuner.app.kernels.kernel import Kernel
from tuner.db import promoted_kernels, targets, workloads
from tuner.db.engine import open_database
from tuner.export.artifacts import ArtifactStore
from tuner.models.executors.checking import sampled
from tuner.runtime.loader import Array, Library, aligned_empty
from tuner.settings import load_settings
from tuner.workload.spec import from_document

# Convolutions, attention of three kinds, recurrence, products alone; none is a part of another.
NAMES = (
    "mlp", "lstm", "gru", "autoencoder", "resnet-18", "mobilenet-v1", "convnext", "distilbert",
    "t5-encoder", "llama",
)  # fmt: skip
ROUNDS = 7  # of the network and its kernels in turn
LIBRARY, SYMBOL = "lib/libmodel.so", "model_run"


def tune(folder: Path, seconds: float) -> None:
    """Tunes the networks that the log lacks, `seconds` each; may run beside other work."""
    # PyTorch is loaded for it alone.
    import torch  # noqa: PLC0415

    import tuner  # noqa: PLC0415
    from benchmarks.models.networks import NETWORKS  # noqa: PLC0415

    path = folder / "networks.jsonl"
    done = {row["network"] for row in _rows(path)}
    for name in NAMES:
        if name in done:
            continue
        network, inputs = NETWORKS[name].built()
        directory = folder / "networks" / name
        shutil.rmtree(directory, ignore_errors=True)
        program = torch.export.export(network, inputs)
        model = tuner.tune_model(program, directory, seconds=seconds, db=_url(folder))
        parts = {share.workload.key: share.calls for share in model.shares}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"network": name, "parts": parts}) + "\n")
        print(f"{name}: {len(parts)} kernels, {1e3 * model.median_s:.3f} ms", flush=True)


def sums(folder: Path) -> None:
    """Times each network and its kernels in turn, and prints how far their sum is from it."""
    errors = []
    store = ArtifactStore(load_settings().values.artifacts)
    for row in _rows(folder / "networks.jsonl"):
        library = Library(folder / "networks" / row["network"] / LIBRARY)
        whole = library, *_call(library, SYMBOL)
        kernels = _kernels(folder, store, list(row["parts"]))
        parts = [
            (part, *_call(part, kernel.symbol))
            for kernel in kernels.values()
            for part in [Library(kernel.path)]
        ]
        ratios, wholes = [], []
        for _ in range(ROUNDS):
            wholes.append(_seconds(*whole))
            apart = [_seconds(*part) for part in parts]
            total_s = sum(
                calls * each_s for calls, each_s in zip(row["parts"].values(), apart, strict=True)
            )
            ratios.append(total_s / wholes[-1])
        ratio = median(ratios)
        errors.append(abs(ratio - 1))
        print(
            f"{row['network']}: {len(parts)} kernels, {1e3 * median(wholes):.3f} ms; the kernels "
            f"sum to {ratio:.3f} of it, in rounds {min(ratios):.3f} to {max(ratios):.3f}",
            flush=True,
        )
    print(f"{len(errors)} networks: mean error {np.mean(errors):.1%}, most {max(errors):.1%}")


def _kernels(folder: Path, store: ArtifactStore, keys: list[str]) -> dict[str, Kernel]:
    with closing(open_database(_url(folder), create=False)) as database, database.read() as session:
        target = targets.list_all(session)[-1]
        promoted = promoted_kernels.promoted_of(session, keys, target.key, 1)
        stored = workloads.get_many(session, keys)
    return {
        key: Kernel(
            stored=promoted[key], workload=from_document(stored[key].document), artifacts=store
        )
        for key in keys
    }


def _call(library: Library, symbol: str) -> tuple[str, list[Array]]:
    """A function and arrays to call it on; indices are 0, which any table has."""
    rng = np.random.default_rng(0)
    signature, arrays = library.signature(symbol), []
    for argument in (*signature.inputs, *signature.outputs):
        array = aligned_empty(argument.shape, argument.numpy_dtype)
        array[...] = rng.random(argument.shape) if array.dtype.kind == "f" else 0
        arrays.append(array)
    return symbol, arrays


def _seconds(library: Library, symbol: str, arrays: list[Array]) -> float:
    return median(sampled(lambda number, repeat: library.time(symbol, arrays, number, repeat)))


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'networks.db'}"


def _rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]

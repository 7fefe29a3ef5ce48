"""One network of the benchmark: tuned, held against itself and raced, in this process.

    python -m benchmarks.models.trial NAME FOLDER '{"door": "onnx", ...}'

The last line of the output is the result as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

import tuner
from benchmarks.models import race as races
from benchmarks.models.exact_runtime import exact_session
from benchmarks.models.networks import NETWORKS, Network

CHECKS = 3  # inputs that outputs are compared on


def main() -> None:
    name, folder, text = sys.argv[1:]
    print(json.dumps(trial(name, Path(folder), json.loads(text))))


def trial(name: str, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    symbol = name.replace("-", "_")
    directory = folder / f"{name}-{settings['door']}-{settings['threads']}"
    shutil.rmtree(directory, ignore_errors=True)
    network, inputs = NETWORKS[name].built()
    given = {key: settings[key] for key in ("seconds", "trials", "threads", "max_error")}
    given = {key: value for key, value in given.items() if value is not None}
    database = f"sqlite:///{folder}/tuner.sqlite"
    path = folder / f"{name}.onnx"
    if settings["door"] != "program" or settings["race"]:
        torch.onnx.export(network, inputs, path, dynamo=True, external_data=False, verbose=False)
    if settings["door"] == "int8":
        path = quantized(path, NETWORKS[name])
    started = time.monotonic()
    if settings["door"] != "program":
        options = [f"--{key.replace('_', '-')}={value}" for key, value in given.items()]
        command = ["tune", str(path), "-o", str(directory), "--name", symbol, *options]
        done = subprocess.run(
            [sys.executable, "-m", "tuner", "--db", database, "--json", *command],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return {"refused": (done.stderr.strip().splitlines() or ["?"])[-1][:300]}
        kernels = json.loads(done.stdout)["model"]["kernels"]
    else:
        program = torch.export.export(network, inputs)
        try:
            tuned = tuner.tune_model(program, directory, name=symbol, db=database, **given)
        except tuner.TunerError as error:
            return {"refused": f"{type(error).__name__}: {error}"[:300]}
        kernels = len(tuned.shares)
    tuned_s = time.monotonic() - started
    package = races.loaded(directory, symbol)
    result: dict[str, Any] = {"kernels": kernels, "tuned_s": tuned_s}
    right = by_runtime(path) if settings["door"] == "int8" else network
    result["error"] = error_of(package, f"{symbol}_run", NETWORKS[name], right)
    if settings["race"]:
        result |= asdict(raced(package, f"{symbol}_run", network, inputs, path, settings))
    return result


def quantized(path: Path, network: Network) -> Path:
    """The file of `tuner quantize`, calibrated on some inputs, with every layer as integers."""
    data, written = path.with_suffix(".npz"), path.with_suffix(".int8.onnx")
    drawn = [network.inputs() for _ in range(CHECKS)]
    names = [value.name for value in onnx.load(path).graph.input]
    values: dict[str, Any] = {
        name: np.concatenate([each[key].numpy() for each in drawn])
        for name, key in zip(names, drawn[0], strict=True)
    }
    np.savez(data, **values)
    # All of it, whatever random weights lose: every runtime is timed on this file.
    command = ["quantize", str(path), "--calibrate", str(data), "-o", str(written), "--max-loss=1"]
    subprocess.run([sys.executable, "-m", "tuner", *command], check=True, stdout=subprocess.DEVNULL)
    return written


def by_runtime(path: Path) -> Any:
    """What ONNX Runtime computes of a file, of tensors."""
    session = exact_session(path)
    names = [value.name for value in session.get_inputs()]

    def run(*inputs: Any) -> Any:
        feeds = {name: each.numpy() for name, each in zip(names, inputs, strict=True)}
        return torch.from_numpy(session.run(None, feeds)[0])

    return run


def error_of(package: Any, symbol: str, network: Network, eager: Any) -> float:
    """The largest error on several inputs, relative to an output's greatest value."""
    errors = []
    for seed in range(CHECKS):
        torch.manual_seed(seed)
        inputs = list(network.inputs().values())
        with torch.no_grad():
            right = eager(*inputs).numpy()
        ours = getattr(package, symbol)(*(each.numpy() for each in inputs))
        ours = np.asarray(ours[0] if isinstance(ours, tuple) else ours)
        error = np.abs(ours.reshape(right.shape) - right).max() / np.abs(right).max()
        errors.append(float(error))
    return float(np.max(errors))  # NaN where any is


def raced(
    package: Any,
    symbol: str,
    network: Any,
    inputs: tuple[Any, ...],
    path: Path,
    settings: dict[str, Any],
) -> races.Raced:
    threads = settings["threads"]
    feeds = [each.numpy() for each in inputs]
    cores = sorted(os.sched_getaffinity(0))[-threads:]
    rivals = {
        "onnxruntime": partial(races.onnxruntime_call, path.read_bytes(), feeds, threads),
        "openvino": partial(races.openvino_call, path, feeds, threads),
    }
    if settings["door"] != "int8":  # PyTorch has the network in float32
        rivals |= {
            "eager": partial(races.eager_call, network, inputs, threads),
            "inductor": partial(races.inductor_call, network, inputs, threads),
        }
    return races.race(races.library_call(package, symbol, feeds, threads), rivals, cores)


if __name__ == "__main__":
    main()

"""Verifies a model of an exported directory: confined, on the inputs of the examples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tuner.export.errors import ManifestError
from tuner.export.examples import EXPECTED, example_inputs
from tuner.export.kernel import Argument, ExportKernel, TargetName
from tuner.export.manifest import Manifest, open_regular
from tuner.models.executors.checking import Checked
from tuner.models.executors.executor import Executor
from tuner.workload.bounded import bounded_from

LARGEST_BYTES = 64 << 20  # of the file with right answers
MODEL = "model"  # in a function's provenance: the SHA-256 of the ONNX file it came from


def is_model(function: Mapping[str, Any]) -> bool:
    """Whether a function's entry in a manifest is that of a whole model."""
    return isinstance(function["provenance"].get(MODEL), str)


def checked_model(
    function: Mapping[str, Any],
    directory: Path,
    manifest: Manifest,
    library: Path,
    executor: Executor,
) -> tuple[float, Checked]:
    """Runs the model and compares it with stored right answers: largest error, and the run.

    The right answers are a sample of the outputs of ONNX's reference evaluator at the
    export. The manifest has their hash. An error is relative to the answer, or to 1 where
    that is greater. Raises ManifestError for a wrong answer, ModelRefused where the call
    fails.
    """
    symbol = function["symbol"]
    answers = _answers(directory, manifest, symbol)
    kernel = _described(function)
    run = executor.run(library, symbol, example_inputs(kernel))
    worst = 0.0
    for output, tolerance, samples in zip(
        run.outputs, answers["tolerances"], answers["samples"], strict=True
    ):
        flat = output.reshape(-1).astype(np.float64)
        for place, right in samples:
            error = abs(float(flat[place]) - right) / max(1.0, abs(right))
            if not error <= tolerance:
                raise ManifestError(
                    f"{symbol}: element {place} of an output is {flat[place]:.6g}; right is "
                    f"{right:.6g}"
                )
            worst = max(worst, error)
    return worst, run


def _answers(directory: Path, manifest: Manifest, symbol: str) -> Mapping[str, Any]:
    """The right answers for a function, from the examples' file. Raises ManifestError."""
    with open_regular(directory / EXPECTED) as file:
        content = file.read(LARGEST_BYTES + 1)
    if sha256(content).hexdigest() != manifest.files.get(EXPECTED):
        raise ManifestError(f"{directory / EXPECTED} was changed while it was being verified")
    try:
        answers: Mapping[str, Any] = json.loads(content)[symbol]
        sound = isinstance(answers["tolerances"], list) and any(answers["samples"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ManifestError(f"{directory / EXPECTED} has no right answers for {symbol}") from error
    if not sound:
        raise ManifestError(f"{directory / EXPECTED} has no right answers for {symbol}")
    return answers


def _described(function: Mapping[str, Any]) -> ExportKernel:
    """The function's signature; it has no code here."""
    target = function["target"]
    return ExportKernel(
        workload_key=function["workload"]["key"],
        arguments=tuple(
            Argument(
                name=argument["name"],
                dtype=argument["dtype"],
                shape=tuple(argument["shape"]),
                role=argument["role"],
                fixed=tuple(argument["fixed"]) if "fixed" in argument else None,
                example=tuple(argument["example"]) if "example" in argument else None,
                format=argument.get("format", ""),
                bounded=bounded_from(argument["bounded"]) if "bounded" in argument else None,
            )
            for argument in function["arguments"]
        ),
        target=TargetName(key=target["key"], kind=target["kind"], name=target["name"]),
        isa=tuple(function["isa"]),
        threads=function["threads"],
        object_code=b"",
        tvm_symbol="",
        median_s=function["median_s"],
        ci95_s=tuple(function["ci95_s"]),
        verified=function["verified"],
        max_rel_error=function["max_rel_error"],
        symbol=function["symbol"],
    )

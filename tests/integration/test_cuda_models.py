"""Whole models for a GPU from their file to a verified library, on a machine whose driver
and compiler are doubles."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tests.device.machine import needs_compiler
from tests.support import onnx_networks as nets
from tests.support.gpu_commands import Machine

MODELS = {"cnn": nets.resnet(size=8, width=4), "transformer": nets.bert()}

pytestmark = [
    needs_compiler,
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("fleet"),
]


@pytest.fixture(scope="module")
def machine(doubles: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Machine:
    made = Machine(tmp_path_factory.mktemp("machine"), doubles)
    for name, model in MODELS.items():
        (made.folder / f"{name}.onnx").write_bytes(nets.serialized(model))
    return made


@pytest.fixture(scope="module", params=list(MODELS))
def tuned(machine: Machine, request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    name: str = request.param
    document: dict[str, Any] = machine.run(
        "tune", f"{name}.onnx", "--target", "cuda", "--trials", "2", "-o", f"out_{name}"
    )
    return name, document


def test_a_model_is_tuned_checked_and_exported(
    machine: Machine, tuned: tuple[str, dict[str, Any]]
) -> None:
    name, document = tuned
    model = document["model"]
    assert model["max_rel_error"] < 1e-4 and model["median_s"] > 0
    assert sum(share["calls"] for share in model["shares"]) == model["calls"]
    assert model["race"] is None and model["numerics"] is None
    manifest = json.loads((machine.folder / f"out_{name}" / "manifest.json").read_text())
    (function,) = manifest["functions"]
    assert function["target"]["kind"] == "cuda" and function["architectures"] == ["sm_90"]
    assert function["device_bytes"] > 0 and function["verified"]
    assert "public_key" in manifest


def test_its_library_is_verified_where_there_is_a_gpu(
    machine: Machine, tuned: tuple[str, dict[str, Any]]
) -> None:
    name, _ = tuned
    report = machine.run("verify", f"out_{name}")
    (function,) = report["functions"]
    assert report["ok"] and function["same_target"] and function["median_s"] > 0
    refused = machine.run("verify", f"out_{name}", gpu=False, status=1)
    assert refused is None or not refused["ok"]


def test_its_package_takes_arrays_of_numpy(
    machine: Machine, tuned: tuple[str, dict[str, Any]], doubles: Mapping[str, str]
) -> None:
    name, _ = tuned
    given: dict[str, Any] = nets.feeds(MODELS[name])
    (expected,) = ReferenceEvaluator(MODELS[name]).run(None, given)
    np.savez(machine.folder / "given.npz", *given.values())
    code = (
        f"import numpy as np, {name}\n"
        f"given = np.load('../given.npz')\n"
        f"np.save('../got.npy', {name}.{name}_run(*(given[key] for key in given.files)))\n"
    )
    folder = machine.folder / f"out_{name}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**doubles},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    got = np.load(machine.folder / "got.npy")
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--numerics", "fast"], "have strict numerics"),
        (["--shapes", "batch=1..4"], "one extent instead of a range"),
    ],
)
def test_what_models_for_gpus_have_not_is_refused_before_anything_is_tuned(
    machine: Machine, arguments: list[str], said: str
) -> None:
    process = machine.start("tune", "cnn.onnx", "--target", "cuda", "-o", "none", *arguments)
    _, error = process.communicate(timeout=240)
    assert process.returncode == 2 and said in error
    assert not (machine.folder / "none").exists()


def test_a_machine_without_a_gpu_says_so(machine: Machine) -> None:
    process = machine.start("tune", "cnn.onnx", "--target", "cuda:sm_90", gpu=False)
    _, error = process.communicate(timeout=240)
    assert process.returncode == 2 and "no such GPU" in error

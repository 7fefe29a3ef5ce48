"""Models for a declared CPU: tuned, checked and verified by an agent, right under emulation.

Times of emulation are those of translation, and no assertion is about them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tests.support import onnx_networks as nets
from tests.support.agents import emulated_agent, native_agent, native_target
from tests.support.command import Tuner
from tests.support.model_kernels import compiled
from tuner.app.jobs.lifecycle import run
from tuner.db import artifacts, jobs, targets, tasks
from tuner.db.engine import open_database
from tuner.export.archive import library_in
from tuner.export.artifacts import ArtifactStore
from tuner.measure.device.runner import DeviceRunner
from tuner.models.executors.cpu_executor import CpuExecutor
from tuner.models.executors.device_calls import DeviceCalls
from tuner.models.library.library import ModelNumbers
from tuner.models.reading import read_graph
from tuner.models.workloads import workloads_of
from tuner.runtime.link import toolchain_for
from tuner.runtime.loader import Library
from tuner.settings import Settings
from tuner.target.detect import parse_target
from tuner.workers.jobs.model_jobs import NAME

pytest_plugins = ["tests.support.command"]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(280)]
MODELS = {
    "mobilenet": nets.mobilenet(size=16, width=8, blocks=((8, 1), (16, 2))),
    "tagger": nets.tagger(),
}


@pytest.mark.parametrize("name", ["neoverse-n1", "neoverse-v2", "rv64gcv"])
@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_right_under_emulation(name: str, model: str, tmp_path: Path) -> None:
    """Constants are packed by the agent too."""
    device, target = emulated_agent(name), parse_target(f"cpu:{name}")
    graph = read_graph(nets.serialized(MODELS[model]), {})
    kernels = {
        part.workload.key: compiled(part.workload, 1, target) for part in workloads_of(graph)
    }
    given = nets.feeds(MODELS[model])
    (expected,) = ReferenceEvaluator(MODELS[model]).run(None, given)
    with DeviceRunner(device, patience_s=0.0) as runner:
        executor = CpuExecutor(DeviceCalls(runner, 1), toolchain_for(target))
        built = executor.build(graph, kernels, target, 1, "net", ModelNumbers())
        path = tmp_path / "net.so"
        path.write_bytes(executor.link(built))
        (got,) = executor.run(path, "net", [*given.values()]).outputs
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


def test_a_model_is_tuned_exported_and_verified_on_a_device(tuner: Tuner) -> None:
    target, device = native_target().name, native_agent().text
    onnx.save(nets.perceptron(rows=2, sizes=(16, 8)), "net.onnx")
    there = ("--target", target, "--device", device)
    tuned = tuner("tune", "net.onnx", *there, "--trials", "2", "-o", "kit", "--json")
    assert tuned.code == 0, tuned.err
    model = tuned.document["model"]
    assert model["kernels"] == 2 and model["median_s"] > 0 and model["max_rel_error"] < 1e-5
    assert sum(share["inside_s"] > 0 for share in model["shares"]) == 2
    verified = tuner("verify", "kit", "--device", device, "--json")
    assert verified.code == 0, verified.err
    (function,) = verified.document["functions"]
    assert function["ok"] and function["same_target"]
    assert verified.document["machine"]["name"] == target


def test_a_service_makes_the_library_of_a_model_on_its_device(tmp_path: Path) -> None:
    """A job of a file, as `POST /v1/models` makes it."""
    make = nets.Maker()
    content = nets.serialized(make.model({"x": (2, 16)}, make.linear("x", 16, 8), (2, 8)))
    settings = Settings(
        data_dir=tmp_path, db=f"sqlite:///{tmp_path}/tuner.db", device=native_agent().text
    )
    database, store = open_database(settings.db), ArtifactStore(settings.artifacts)
    digest = store.put(content)
    with database.write() as session:
        artifacts.remember(session, sha256=digest, size_bytes=len(content), kind="model")
        new = jobs.NewJob(
            workloads=(),
            target=targets.remember(session, native_target()),
            threads=1,
            trials=1,
            kind=jobs.MODEL,
            settings={tasks.MODEL: digest},
        )
        job, _ = jobs.create(session, new)
    try:
        done = run(database, job.id, settings).job
    finally:
        database.close()
    assert done.state == jobs.SUCCEEDED, done.error
    library = tmp_path / "net.so"
    library.write_bytes(library_in(store.get(str(done.settings[tasks.LIBRARY])), NAME))
    x = np.random.default_rng(1).standard_normal((2, 16)).astype(np.float32)
    (expected,) = ReferenceEvaluator(onnx.load_from_string(content)).run(None, {"x": x})
    np.testing.assert_allclose(Library(library).function(f"{NAME}_run")(x), expected, rtol=1e-4)


def test_several_extents_and_fast_numerics_of_a_device(tuner: Tuner) -> None:
    """One function for all of them. Each is called there, with each choice of numerics."""
    target, device = native_target().name, native_agent().text
    make = nets.Maker()
    net = make.model({"x": (2, 16)}, make.linear("x", 16, 8), (2, 8))
    for value in (*net.graph.input, *net.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(net, "net.onnx")
    tuned = tuner(
        "tune", "net.onnx", "--shapes", "batch=2|5", "--target", target, "--device", device,
        "--trials", "1", "--max-error", "1e-3", "-o", "kit", "--json",
    )  # fmt: skip
    assert tuned.code == 0, tuned.err
    assert tuned.document["model"]["members"] == [2, 5]
    verified = tuner("verify", "kit", "--device", device, "--json")
    assert verified.code == 0, verified.err

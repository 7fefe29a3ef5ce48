"""A model's libraries called by an agent: what confined processes of this machine give, and
each failure as a refusal. The agent is of this machine; a device that is lost comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from onnx import TensorProto, helper

from tests.support import onnx_networks as nets
from tests.support.agents import native_agent
from tests.support.model_kernels import compiled
from tests.support.targets import host_target
from tuner.export.library import function_of
from tuner.measure.device.runner import DeviceRunner
from tuner.models.errors import ModelRefused
from tuner.models.executors.confined_calls import ConfinedCalls
from tuner.models.executors.cpu_executor import CpuExecutor
from tuner.models.executors.device_calls import MOST_ARGUMENTS, DeviceCalls
from tuner.models.executors.library_calls import LibraryCalls
from tuner.models.graph import Graph
from tuner.models.library.library import ModelNumbers, model_kernel
from tuner.models.reading import read_graph
from tuner.models.reference.check_inputs import check_inputs
from tuner.models.reference.evaluation import evaluate_graph
from tuner.models.workloads import workloads_of
from tuner.runtime.link import link
from tuner.runtime.loader import Library

SWITCHED = "switched"


@pytest.fixture(scope="module")
def device() -> Iterator[DeviceCalls]:
    with DeviceRunner(native_agent(), patience_s=0.0) as runner:
        yield DeviceCalls(runner, 1)


@pytest.fixture(scope="module")
def here() -> ConfinedCalls:
    return ConfinedCalls((0,))


@pytest.fixture(scope="module")
def graph() -> Graph:
    return read_graph(nets.serialized(nets.perceptron(rows=2, sizes=(16, 32, 8))), {})


@pytest.fixture(scope="module")
def switched(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with two kernels of the first node."""
    keys = [part.workload.key for part in workloads_of(graph)]
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    kernels["other"] = compiled(workloads_of(graph)[0].workload, 1)
    assert keys[0] in kernels
    switches = {graph.expressions[0].outputs[0]: ["other"]}
    built = model_kernel(
        graph, kernels, host_target(), 1, SWITCHED, ModelNumbers(), profiled=True, switches=switches
    )
    path = tmp_path_factory.mktemp("library") / "switched.so"
    path.write_bytes(link(SWITCHED, [function_of(built)]))
    return path


def test_a_model_is_packed_and_called_as_here(
    device: DeviceCalls, here: ConfinedCalls, tmp_path: Path
) -> None:
    """Constants are packed by the agent, to the same bytes."""
    graph = read_graph(nets.serialized(nets.perceptron(rows=4, sizes=(16, 32, 8))), {})
    kernels = {part.workload.key: compiled(part.workload, 1) for part in workloads_of(graph)}
    assert any(kernel.prepack is not None for kernel in kernels.values())
    inputs, objects, outputs = check_inputs(graph, {}), [], []
    for machine in (device, here):
        executor = CpuExecutor(machine)
        executor.refuse(graph)
        built = executor.build(graph, kernels, host_target(), 1, "net", ModelNumbers())
        objects.append(built.object_code)
        path = tmp_path / "net.so"
        path.write_bytes(executor.link(built))
        checked = executor.run(path, "net", inputs)
        outputs.append(checked.outputs)
        assert len(checked.samples_s) >= 3 and min(checked.samples_s) > 0
    assert objects[0] == objects[1]
    for output, expected in zip(*outputs, strict=True):
        np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("kind", ["device", "here"])
def test_kernels_are_switched_and_compared(
    device: DeviceCalls, here: ConfinedCalls, graph: Graph, switched: Path, kind: str
) -> None:
    """More settings than the agent has cases."""
    machine: LibraryCalls = device if kind == "device" else here
    inputs = [check_inputs(graph, {}, seed) for seed in (0, 1)]
    expected = [
        [evaluate_graph(graph, given)[name].astype(np.float64) for name in graph.outputs]
        for given in inputs
    ]
    rows = [[bool(number % 2)] for number in range(9)]
    errors = machine.errors(switched, SWITCHED, rows, inputs, expected)
    assert len(errors) == len(rows) and max(errors) < 1e-6
    wrong = [[output + 1 for output in outputs] for outputs in expected]
    assert min(machine.errors(switched, SWITCHED, rows[:1], inputs, wrong)) > 0.1
    spent = machine.spent(switched, SWITCHED, inputs[0], rows, longest_s=0.05)
    assert len(spent) == len(rows)
    for row in spent:
        assert len(row.steps) == len(graph.expressions) and row.whole_s > 0


def test_what_fails_is_refused_and_the_next_call_is_none_the_worse(
    device: DeviceCalls, graph: Graph, switched: Path, tmp_path: Path
) -> None:
    inputs = [*check_inputs(graph, {}), np.zeros(1, np.uint8)]
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    with pytest.raises(ModelRefused, match="the device cannot load it"):
        device.run(broken, SWITCHED, inputs)
    with pytest.raises(ModelRefused, match="does not describe a function 'other'"):
        device.run(switched, "other", inputs)
    with pytest.raises(ModelRefused, match=r"takes .* bytes of an element"):
        device.run(switched, SWITCHED, [inputs[0].astype(np.float64), *inputs[1:]])
    got = device.run(switched, SWITCHED, inputs).outputs[0]
    np.testing.assert_array_equal(got, Library(switched).function(SWITCHED)(*inputs)[0])


def test_a_lost_device_is_asked_again(graph: Graph, switched: Path) -> None:
    inputs = [*check_inputs(graph, {}), np.zeros(1, np.uint8)]
    with DeviceRunner(native_agent(), patience_s=0.0) as runner:
        device = DeviceCalls(runner, 1)
        agent = psutil.Process(runner.start()._process.pid)
        agent.kill()
        with suppress(psutil.NoSuchProcess):
            agent.wait(5)
        assert device.run(switched, SWITCHED, inputs).median_s > 0


def test_what_the_protocol_has_no_room_for_is_refused(device: DeviceCalls) -> None:
    count = MOST_ARGUMENTS + 1
    names = [f"x{number}" for number in range(count)]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in names]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    made = helper.make_graph([helper.make_node("Sum", names, ["y"])], "sums", inputs, [output])
    graph = read_graph(nets.serialized(helper.make_model(made)), {})
    with pytest.raises(ModelRefused, match=f"{count} inputs .* it may have {MOST_ARGUMENTS}"):
        device.refuse(graph)

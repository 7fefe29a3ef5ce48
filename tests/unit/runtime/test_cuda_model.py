"""Models for GPUs as libraries, on the double of NVIDIA's driver: device addresses and arrays
of the host, addresses that change, streams that are captured, steps without an order."""

from __future__ import annotations

import ctypes.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.machine import needs_compiler
from tests.support.cuda_modules import MODULE
from tuner.lowering.cuda.nvcc import cuda_compiler
from tuner.runtime.cuda_loader import ArrayError, CudaLibrary, CudaLibraryError
from tuner.runtime.cuda_model import (
    CudaModel,
    DevicePlace,
    ModelCopy,
    ModelLaunch,
    unpacked_model,
)
from tuner.runtime.cuda_model_link import link_cuda_model
from tuner.runtime.cuda_module import CudaModule, CudaModuleError, Launch
from tuner.runtime.toolchain import LinkError, Toolchain
from tuner.target.detect import parse_target
from tuner.workload.expression import Tensor

LENGTH = 64
NBYTES = 4 * LENGTH
SOURCE = """
extern "C" __global__ void __launch_bounds__(64) add(float* out, const float* a, const float* b) {
  out[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(64) twice(float* out, const float* a) {
  out[threadIdx.x] = 2 * a[threadIdx.x];
}
"""


def tensor(name: str) -> Tensor:
    return Tensor(name=name, shape=(LENGTH,), dtype="float32")


def module(symbol: str, inputs: tuple[str, ...], cubin: bytes) -> CudaModule:
    launch = Launch(
        kernel=symbol, arguments=("out", *inputs), grid=(1, 1, 1), block=(64, 1, 1), shared_bytes=0
    )
    return CudaModule(
        symbol=symbol,
        inputs=tuple(map(tensor, inputs)),
        outputs=(tensor("out"),),
        workspace=(),
        launches=(launch,),
        cubins=(("sm_90", cubin),),
    )


argument = [DevicePlace(kind="argument", position=number) for number in range(3)]
memory = [DevicePlace(kind="memory", offset=256 * number) for number in range(3)]
FIRST = ModelLaunch(kernel=0, launch=0, places=(memory[0], argument[0], memory[1]), after=())
COPY = ModelCopy(source=argument[0], destination=argument[2], nbytes=NBYTES, after=())


def model_of(cubin: bytes, constants: bytes) -> CudaModel:
    """(W + X) + 2 X, and X itself. The first two steps need not wait for one another."""
    return CudaModel(
        symbol="net_run",
        inputs=(tensor("x"),),
        outputs=(tensor("y"), tensor("same")),
        kernels=(module("add", ("a", "b"), cubin), module("twice", ("a",), cubin)),
        steps=(
            FIRST,
            ModelLaunch(kernel=1, launch=0, places=(argument[0], memory[2]), after=()),
            ModelLaunch(
                kernel=0, launch=0, places=(memory[1], memory[2], argument[1]), after=(0, 1)
            ),
            COPY,
        ),
        constants=constants,
        memory_bytes=768,
    )


WEIGHTS = np.arange(LENGTH, dtype=np.float32)
MODEL = model_of(b"\x7fELF none", WEIGHTS.tobytes())


def test_a_model_is_the_same_after_packing() -> None:
    assert unpacked_model(MODEL.pack()) == MODEL
    assert MODEL.architectures == ("sm_90",)
    for damaged in (MODEL.pack()[:-1], MODEL.pack()[:40], b"tuner-cuda-1\n", MODULE.pack()):
        with pytest.raises(CudaModuleError):
            unpacked_model(damaged)


@pytest.mark.parametrize(
    "changed",
    [
        {"memory_bytes": 767},
        {"outputs": (tensor("y"),)},
        {"kernels": MODEL.kernels[:1]},
        {"steps": (replace(FIRST, after=(0,)),)},
        {"steps": (replace(FIRST, places=FIRST.places[:2]),)},
        {"steps": (replace(FIRST, launch=1),)},
        {"steps": (replace(COPY, nbytes=NBYTES + 4),)},
    ],
)
def test_a_model_that_contradicts_itself_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(CudaModuleError):
        replace(MODEL, **changed).check()


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return Toolchain.find(cache=tmp_path_factory.mktemp("cache"))


def test_names_that_are_no_identifiers_are_refused(tools: Toolchain) -> None:
    with pytest.raises(LinkError, match="no name"):
        link_cuda_model("no name", MODEL, toolchain=tools)


def test_arguments_are_checked_and_a_machine_without_a_driver_is_told_so(
    tools: Toolchain, tmp_path: Path
) -> None:
    path = tmp_path / "libnet.so"
    path.write_bytes(link_cuda_model("net", MODEL, toolchain=tools))
    assert path.read_bytes() == link_cuda_model("net", MODEL, toolchain=tools)
    function = CudaLibrary(path).model("net_run")
    with pytest.raises(CudaLibraryError, match="arguments 0 and 1 overlap"):
        function.launch([4096, 4096, 8192])
    with pytest.raises(ArrayError, match="x must be float32 of shape"):
        function(WEIGHTS.astype(np.float64))
    with pytest.raises(ArrayError, match=r"takes 1 arrays \(x\), 2 were given"):
        function(WEIGHTS, WEIGHTS)
    if ctypes.util.find_library("cuda") is None:
        with pytest.raises(CudaLibraryError, match="driver cannot be opened"):
            function(WEIGHTS)
        with pytest.raises(CudaLibraryError, match="driver cannot be opened"):
            function.times([4096, 8192, 16384])


PROGRAM = """
import json, sys
import numpy as np
from tuner.runtime.cuda_driver import Device
from tuner.runtime.cuda_loader import CudaLibrary, CudaLibraryError

function, device = CudaLibrary(sys.argv[1]).model("net_run"), Device()
rng = np.random.default_rng(0)
arrays = [rng.standard_normal(64).astype(np.float32) for _ in range(3)]
weights, errors, failures = np.arange(64, dtype=np.float32), [], []

def right(x, outputs):
    return max(abs(outputs[0] - (weights + 3 * x)).max(), abs(outputs[1] - x).max())

for x in arrays:
    errors.append(right(x, function(x)))
places = []
for x in arrays:
    places.append([device.allocate(256) for _ in range(3)])
    device.upload(places[-1][0], x)

def check(call):
    for x, addresses in zip(arrays, places):
        for address in addresses[1:]:
            device.fill(address, 0xff, 256)
        call(addresses)
        errors.append(right(x, [device.download(a, (64,), np.float32) for a in addresses[1:]]))

for _ in range(2):
    check(lambda addresses: function.launch(addresses, device.stream))
check(lambda addresses: function.launch(addresses))
graph = {}
for number, addresses in enumerate(places):
    graph[number] = device.captured(lambda: function.launch(addresses, device.stream), 1)
check(lambda addresses: graph[places.index(addresses)].launch())
times = function.times(places[0], device.stream)
try:
    function.launch([*places[0][:2], places[0][2] + (1 << 40)], device.stream)
except CudaLibraryError as error:
    failures.append(str(error))
check(lambda addresses: function.launch(addresses, device.stream))
print(json.dumps([max(map(float, errors)), times, len(errors), failures]))
"""


@needs_compiler
@pytest.mark.usefixtures("gpu_double")
def test_calls_are_right_whatever_their_addresses_and_streams(
    tools: Toolchain, tmp_path: Path
) -> None:
    compiler = cuda_compiler(tmp_path / "cubins")
    cubin = compiler.compile(SOURCE, parse_target("cuda:sm_90")).code
    path = tmp_path / "libnet.so"
    path.write_bytes(link_cuda_model("net", model_of(cubin, WEIGHTS.tobytes()), toolchain=tools))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    error, times, count, failures = json.loads(done.stdout)
    assert error < 1e-5 and count == 3 + 5 * 3
    assert len(times) == 4 and min(times) > 0
    # The copy to an address that does not exist is refused, and later calls are right again.
    assert failures == [
        "net_run: changing a graph failed: CUDA_ERROR_INVALID_VALUE (invalid argument)"
    ]

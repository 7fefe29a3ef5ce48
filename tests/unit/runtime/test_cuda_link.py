"""Libraries of CUDA kernels without a GPU: they compile, check their arguments, say
that there is no driver, read DLPack.

Launching is only tried where there is a GPU.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import shutil
import subprocess
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cuda_modules import MODULE, cuda_headers, no_driver
from tuner.runtime.cuda_link import cuda_signature, cuda_wrapper, link_cuda
from tuner.runtime.cuda_loader import (
    ArrayError,
    CudaLibrary,
    CudaLibraryError,
    held,
    misfit,
    stream_address,
)
from tuner.runtime.cuda_module import CudaModuleError, capability
from tuner.runtime.toolchain import LinkError, Toolchain

NULL, ALIGNMENT, OVERLAP, DRIVER = 1, 2, 3, 8


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    path = folder / "librowwise.so"
    path.write_bytes(
        link_cuda("rowwise", [MODULE], toolchain=Toolchain.find(cache=folder / "cache"))
    )
    return path


def status(path: Path, *addresses: int) -> tuple[int, str]:
    function = CudaLibrary(path).function("rows")
    with pytest.raises(CudaLibraryError) as raised:
        function.launch(addresses)
    return raised.value.status, str(raised.value)


def test_arguments_are_checked_before_anything_is_opened(library: Path) -> None:
    assert status(library, 0, 4096) == (NULL, "rows: argument 0 is null")
    assert status(library, 4096, 8200) == (ALIGNMENT, "rows: argument 1 is not aligned to 16 bytes")
    assert status(library, 4096, 4096 + 112) == (OVERLAP, "rows: arguments 0 and 1 overlap")
    assert status(library, 4096 + 48, 4096)[0] == OVERLAP


@no_driver
def test_a_machine_without_a_driver_is_told_so(library: Path) -> None:
    code, said = status(library, 4096, 4096 + 128)
    assert code == DRIVER
    assert "driver cannot be opened" in said and "libcuda.so.1" in said


def test_the_library_depends_on_nothing_of_nvidias_and_shows_only_its_functions(
    library: Path,
) -> None:
    needed = subprocess.run(
        ["objdump", "-p", library], capture_output=True, text=True, check=True
    ).stdout
    assert "cuda" not in "".join(line for line in needed.splitlines() if "NEEDED" in line)
    names = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[-1] for line in names.splitlines()} == {
        "rows",
        "rowwise_last_error",
        "tuner_library_json",
    }


def test_the_same_module_gives_the_same_bytes(library: Path, tmp_path: Path) -> None:
    assert (
        link_cuda("rowwise", [MODULE], toolchain=Toolchain.find(cache=tmp_path))
        == library.read_bytes()
    )


def test_what_cannot_be_a_library_is_refused(tmp_path: Path) -> None:
    tools = Toolchain.find(cache=tmp_path)
    for modules, error in (
        ([], LinkError), ([MODULE, MODULE], LinkError), ([replace(MODULE, symbol="no name")],
        LinkError),
        ([replace(MODULE, cubins=())], CudaModuleError), ([replace(MODULE, cubins=(("compute_90",
        b""),))], CudaModuleError),
        ([replace(MODULE, workspace=())], CudaModuleError), ([replace(MODULE, launches=())],
        CudaModuleError),
    ):  # fmt: skip
        with pytest.raises(error):
            link_cuda("rowwise", modules, toolchain=tools)


def test_the_generated_text_names_buffers_by_their_places() -> None:
    assert cuda_signature(MODULE) == "int rows(const float *in0, uint16_t *out0, void *stream)"
    text = cuda_wrapper("rowwise", [MODULE])
    assert "arguments_0_0[] = {2, 0}" in text and "arguments_0_1[] = {1, 2}" in text
    assert "bytes_0[] = {128, 64, 32}" in text
    assert "{2, 1, 1}, {32, 4, 1}, 65536, 2" in text


def test_an_architecture_names_its_capability() -> None:
    assert capability("sm_90") == (9, 0) and capability("sm_120") == (12, 0)


def aligned_zeros(rows: int, columns: int) -> np.ndarray[Any, Any]:
    """float32, at an address that 64 divides, wherever NumPy's allocator begins."""
    room = np.zeros(4 * rows * columns + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + 4 * rows * columns].view(np.float32).reshape(rows, columns)


@pytest.mark.parametrize(
    ("array", "fault"),
    [
        (aligned_zeros(8, 4), None),
        (np.zeros((8, 4), np.float16), "must be float32"),
        (np.zeros((8, 4), np.int32), "must be float32"),
        (np.zeros((4, 8), np.float32), "[4, 8]"),
        (np.zeros((8, 8), np.float32)[:, ::2], "dense"),
        (np.zeros((4, 8), np.float32).T, "dense"),
        (np.zeros(33, np.float32)[1:].reshape(8, 4), "aligned"),
    ],
)
def test_dlpack_is_read(array: np.ndarray[Any, Any], fault: str | None) -> None:
    tensor = held(array)
    assert (tensor.address, tensor.device_type, tensor.shape) == (array.ctypes.data, 1, array.shape)
    said = misfit(tensor, "float32", (8, 4))
    assert said is None if fault is None else fault in str(said)


def test_arrays_elsewhere_and_what_is_no_array_are_refused(library: Path) -> None:
    function = CudaLibrary(library).function("rows")
    with pytest.raises(ArrayError, match="not in memory of a GPU"):
        function(np.zeros((8, 4), np.float32), np.zeros((8, 4), np.float16))
    with pytest.raises(ArrayError, match="no array with __dlpack__"):
        function([1.0], [2.0])
    with pytest.raises(ArrayError, match=r"takes 2 arrays \(X, Y\), 1 were given"):
        function(np.zeros((8, 4), np.float32))


def test_streams_of_other_packages_are_understood() -> None:
    class Torch:
        cuda_stream = 7

    class Cupy:
        ptr = 9

    assert [stream_address(stream) for stream in (None, 5, Torch(), Cupy())] == [0, 5, 7, 9]


def test_a_library_for_processors_is_no_library_of_cuda_kernels(tmp_path: Path) -> None:
    source = tmp_path / "other.c"
    source.write_text('const char *tuner_library_json(void) { return "{}"; }')
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "other.so", source], check=True)
    with pytest.raises(CudaLibraryError, match="no library of CUDA kernels"):
        CudaLibrary(tmp_path / "other.so")


def test_its_description_is_json(library: Path) -> None:
    described = ctypes.CDLL(str(library)).tuner_library_json
    described.restype = ctypes.c_char_p
    document = json.loads(described())
    assert document["functions"][0]["architectures"] == ["sm_80", "sm_90"]
    assert [argument["dtype"] for argument in document["functions"][0]["arguments"]] == [
        "float32",
        "float16",
    ]


AGREES = r"""
#include <cuda.h>
#include <cstddef>
#include <type_traits>
#include "tuner_cuda_driver.h"
#include "tuner_cuda_graph_driver.h"
template <class A, class B> constexpr bool alike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;
template <class A, class B> struct same : std::false_type {};
template <class RA, class... A, class RB, class... B> requires(sizeof...(A) == sizeof...(B))
struct same<RA (*)(A...), RB (*)(B...)> : std::bool_constant<(alike<A, B> && ... && (sizeof(RA) == sizeof(RB)))> {};
#define CHECK(field, name) static_assert(same<decltype(&::field), decltype(tuner_cuda_driver::field)>::value, name);
TUNER_CUDA_DRIVER(CHECK)
#define CHECK_GRAPH(field, name) static_assert(same<decltype(&::field), decltype(tuner_cuda_graph_driver::field)>::value, name);
TUNER_CUDA_GRAPH_DRIVER(CHECK_GRAPH)
#define AT(ours, field, theirs, theirs_field) static_assert(offsetof(ours, field) == offsetof(theirs, theirs_field));
AT(tuner_cuda_kernel_node, shared_bytes, CUDA_KERNEL_NODE_PARAMS, sharedMemBytes)
AT(tuner_cuda_kernel_node, parameters, CUDA_KERNEL_NODE_PARAMS, kernelParams)
AT(tuner_cuda_kernel_node, context, CUDA_KERNEL_NODE_PARAMS, ctx)
AT(tuner_cuda_copy_node, source.kind, CUDA_MEMCPY3D, srcMemoryType)
AT(tuner_cuda_copy_node, source.device, CUDA_MEMCPY3D, srcDevice)
AT(tuner_cuda_copy_node, source.pitch, CUDA_MEMCPY3D, srcPitch)
AT(tuner_cuda_copy_node, destination.kind, CUDA_MEMCPY3D, dstMemoryType)
AT(tuner_cuda_copy_node, destination.device, CUDA_MEMCPY3D, dstDevice)
AT(tuner_cuda_copy_node, width_bytes, CUDA_MEMCPY3D, WidthInBytes)
AT(tuner_cuda_copy_node, depth, CUDA_MEMCPY3D, Depth)
static_assert(sizeof(tuner_cuda_kernel_node) == sizeof(CUDA_KERNEL_NODE_PARAMS));
static_assert(sizeof(tuner_cuda_copy_node) == sizeof(CUDA_MEMCPY3D));
static_assert(CU_MEMORYTYPE_DEVICE == (int)TUNER_CUDA_ON_DEVICE);
static_assert(CU_STREAM_CAPTURE_STATUS_NONE == (int)TUNER_CUDA_NOT_CAPTURED);
TUNER_CUDA_DRIVER_OPTIONAL(CHECK)
static_assert(CUDA_ERROR_OUT_OF_MEMORY == (int)TUNER_CUDA_OUT_OF_MEMORY);
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR == (int)TUNER_CUDA_CAPABILITY_MAJOR);
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR == (int)TUNER_CUDA_CAPABILITY_MINOR);
static_assert(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == (int)TUNER_CUDA_DYNAMIC_SHARED_BYTES);
static_assert(sizeof(CUtensorMap) == (int)TUNER_CUDA_TENSOR_MAP_BYTES && alignof(CUtensorMap) <= (int)TUNER_CUDA_TENSOR_MAP_ALIGNMENT);
static_assert(CU_TENSOR_MAP_INTERLEAVE_NONE == (int)TUNER_CUDA_NOT_INTERLEAVED);
static_assert(CU_TENSOR_MAP_SWIZZLE_128B == (int)TUNER_CUDA_SWIZZLE_128B);
static_assert(CU_TENSOR_MAP_L2_PROMOTION_L2_128B == (int)TUNER_CUDA_L2_PROMOTION);
static_assert(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE == (int)TUNER_CUDA_ZEROS_OUTSIDE);
static_assert(CU_TENSOR_MAP_DATA_TYPE_FLOAT16 == 6 && CU_TENSOR_MAP_DATA_TYPE_FLOAT32 == 7);
static_assert(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 == 9);
"""  # noqa: E501


@pytest.mark.skipif(
    cuda_headers() is None or shutil.which("g++") is None,
    reason="no cuda.h of a toolkit, or no C++ compiler",
)
def test_the_driver_is_declared_as_nvidia_declares_it(tmp_path: Path) -> None:
    folder = files("tuner.runtime") / "src"
    header = (folder / "tuner_cuda_driver.h").read_text()
    (tmp_path / "tuner_cuda_driver.h").write_text(header)
    graphs = (folder / "tuner_cuda_graph_driver.h").read_text()
    (tmp_path / "tuner_cuda_graph_driver.h").write_text(graphs)
    (tmp_path / "agrees.cpp").write_text(AGREES)
    command = ["g++", "-std=c++20", "-fsyntax-only", f"-I{cuda_headers()}", "agrees.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    wrong = header.replace(
        "int (*cuCtxGetDevice)(int *device)", "int (*cuCtxGetDevice)(int device)"
    )
    (tmp_path / "tuner_cuda_driver.h").write_text(wrong)
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode != 0


def test_arguments_get_a_callers_names_and_workspace_makes_way() -> None:
    named = MODULE.named(["T", "my_out"])
    named.check()
    assert [tensor.name for tensor in named.buffers] == ["T", "my_out", "T_"]
    assert [launch.arguments for launch in named.launches] == [("T_", "T"), ("my_out", "T_")]
    assert named.named(["X", "Y"]).buffers[:2] == MODULE.buffers[:2]
    with pytest.raises(CudaModuleError, match="2 arguments"):
        MODULE.named(["X"])

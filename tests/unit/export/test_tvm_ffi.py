"""The tvm-ffi symbol of each exported function, called by tvm-ffi's own loader."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.export.kernel import ExportKernel
from tuner.export.library import export_library, function_of
from tuner.export.naming import named
from tuner.runtime.interfaces import TVM_FFI
from tuner.runtime.link import link
from tuner.runtime.loader import Library, aligned_empty
from tuner.runtime.portfolio import Portfolio
from tuner.runtime.toolchain import Toolchain
from tuner.workload.rows import Rows

Make = Callable[..., ExportKernel]
SYMBOL = "elementwise_n1024_double"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, kernel: Make, toolchain: Toolchain) -> Path:
    directory = tmp_path_factory.mktemp("tvm-ffi") / "kit"
    export_library([kernel()], directory, "kit", toolchain=toolchain)
    return directory


@pytest.fixture(scope="module")
def double(exported: Path) -> Any:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    return tvm_ffi.load_module(str(exported / "lib" / "libkit.so"))[SYMBOL]


def array(count: int = 1024, dtype: str = "float32") -> np.ndarray[Any, np.dtype[Any]]:
    result = aligned_empty((count,), dtype)
    result[...] = np.arange(count)
    return result


def test_arrays_in_and_out(double: Any) -> None:
    x, y = array(), array()
    assert double(x, y) is None
    np.testing.assert_array_equal(y, 2 * x)


def test_a_tensor_of_tvm_ffi(double: Any) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    x, y = array(), array()
    double(tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(y))
    np.testing.assert_array_equal(y, 2 * x)


def test_tensors_of_pytorch(double: Any) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.arange(1024, dtype=torch.float32), torch.empty(1024)
    double(x, y)
    assert torch.equal(y, 2 * x)
    with pytest.raises(TypeError, match="X has dtype bfloat16, expected float32"):
        double(x.bfloat16(), y)


def _misaligned() -> Any:
    return array(1025)[1:]


@pytest.mark.parametrize(
    ("x", "y", "error", "text"),
    [
        (array(dtype="float64"), array(), TypeError, "X has dtype float64, expected float32"),
        (array(512), array(), ValueError, "X has shape (512), expected (1024)"),
        (array(), array().reshape(2, 512), ValueError, "Y has shape (2, 512), expected (1024)"),
        (array(2048)[::2], array(), ValueError, "X has strides, expected a dense, row-major"),
        (_misaligned(), array(), ValueError, "is not aligned to 64 bytes"),
        (3, array(), TypeError, "argument 0 (X) is no tensor"),
        (None, array(), TypeError, "argument 0 (X) is no tensor"),
        ("text", array(), TypeError, "argument 0 (X) is no tensor"),
    ],
)
def test_a_wrong_argument_is_one_error_and_nothing_is_written(
    double: Any, x: Any, y: Any, error: type[Exception], text: str
) -> None:
    before = y.copy()
    with pytest.raises(error, match=rf"{SYMBOL}: ") as caught:
        double(x, y)
    assert text in str(caught.value)
    np.testing.assert_array_equal(y, before)


def test_overlapping_tensors_and_a_wrong_number(double: Any) -> None:
    x = array(2048)
    with pytest.raises(ValueError, match=r"output Y .* overlaps X"):
        double(x[:1024], x[16:1040])
    with pytest.raises(TypeError, match="takes 2 tensors, inputs then outputs, got 1 arguments"):
        double(x[:1024])


def test_the_library_needs_nothing_of_tvm_ffi(exported: Path, tmp_path: Path) -> None:
    """Without it a call with wrong arguments has its text where C has it."""
    program = f"""
import ctypes
library = ctypes.CDLL({str(exported / "lib" / "libkit.so")!r})
assert library.__getattr__("__tvm_ffi_{SYMBOL}")(None, None, 0, None) == -1
library.kit_last_error.restype = ctypes.c_char_p
print(library.kit_last_error().decode())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "takes 2 tensors, inputs then outputs, got 0 arguments" in done.stdout
    needed = subprocess.run(
        ["readelf", "-d", exported / "lib" / "libkit.so"],
        capture_output=True, text=True, check=True, timeout=60, env={**os.environ, "LC_ALL": "C"},
    ).stdout  # fmt: skip
    libraries = {line.split("[")[1].rstrip("]") for line in needed.splitlines() if "NEEDED" in line}
    system = {"libc", "libm", "libpthread", "libdl", "ld-linux-x86-64", "ld-linux-aarch64"}
    assert {library.split(".")[0] for library in libraries} <= system


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Any(ctypes.Structure):
    _fields_ = [
        ("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("ptr", ctypes.c_void_p),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("device_type", 2, "is on a device of type 2, expected the CPU"),
        ("lanes", 4, "has dtype float32x4, expected float32"),
        ("code", 200, "has dtype dtype code 32"),
        ("ndim", -1, "has -1 dimensions"),
        ("ndim", 1 << 30, "has 1073741824 dimensions"),
        ("shape", None, "has 1 dimensions"),
        ("data", None, "is a null pointer"),
        ("byte_offset", 4, "is not aligned to 64 bytes"),
    ],
)
def test_hostile_tensors_are_refused(exported: Path, field: str, value: Any, text: str) -> None:
    library = ctypes.CDLL(str(exported / "lib" / "libkit.so"))
    library.kit_last_error.restype = ctypes.c_char_p
    arrays, shape = [array(), array()], (ctypes.c_int64 * 1)(1024)
    tensors = [
        _DLTensor(a.ctypes.data, 1, 0, 1, 2, 32, 1, ctypes.addressof(shape), None, 0)
        for a in arrays
    ]
    call = library[f"__tvm_ffi_{SYMBOL}"]
    packed = (_Any * 2)(*(_Any(7, 0, ctypes.addressof(tensor)) for tensor in tensors))
    result = _Any()
    assert call(None, packed, 2, ctypes.byref(result)) == 0
    setattr(tensors[0], field, value)
    assert call(None, packed, 2, ctypes.byref(result)) == -1
    assert text in library.kit_last_error().decode()


def test_an_entry_of_the_same_name_is_renamed(
    tmp_path: Path, kernel: Make, toolchain: Toolchain
) -> None:
    """Models' objects have entries of the name that tvm-ffi looks up."""
    plain = function_of(named([kernel()], "kit")[0])
    code = toolchain.renamed(plain.object_code, "__tvm_ffi_main", f"__tvm_ffi_{SYMBOL}")
    function = replace(plain, object_code=code, tvm_symbol=f"__tvm_ffi_{SYMBOL}")
    path = tmp_path / "libkit.so"
    path.write_bytes(link("kit", [function], toolchain=toolchain, interfaces=[TVM_FFI]))
    x, y = array(), array()
    Library(path).call(SYMBOL, [x, y])
    np.testing.assert_array_equal(y, 2 * x)


def test_a_range_takes_its_extent_from_the_tensors(
    tmp_path: Path, kernel: Make, toolchain: Toolchain
) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    member = replace(
        kernel("workspace"),
        arguments=tuple(replace(a, shape=(8, 128)) for a in kernel().arguments),
    )
    rows = Rows(name="M", low=1, high=16, ranged=(0, 1))
    greatest = tuple(replace(a, shape=(16, 128)) for a in member.arguments)
    ranged = replace(
        member,
        symbol="rows",
        arguments=greatest,
        object_code=b"",
        portfolio=Portfolio(rows=rows, kernels=(member,), extents=(8,), plan=(0,) * 17),
    )
    path = tmp_path / "libkit.so"
    path.write_bytes(link("kit", [function_of(ranged)], toolchain=toolchain, interfaces=[TVM_FFI]))
    call = tvm_ffi.load_module(str(path))["rows"]
    for count in (1, 8, 13, 16):
        x, y = aligned_empty((count, 128), "float32"), aligned_empty((count, 128), "float32")
        x[...] = np.arange(count * 128).reshape(count, 128)
        call(x, y)
        np.testing.assert_array_equal(y, 2 * x)
    with pytest.raises(ValueError, match="M is 17, outside its range 1 to 16"):
        call(*(aligned_empty((17, 128), "float32") for _ in range(2)))
    with pytest.raises(ValueError, match=r"Y has shape \(7, 128\), expected \(8, 128\)"):
        call(aligned_empty((8, 128), "float32"), aligned_empty((7, 128), "float32"))

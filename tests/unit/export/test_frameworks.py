"""Exports for frameworks: what each adds, and calls by the frameworks that are here."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.export.errors import ExportRefused
from tuner.export.frameworks import FRAMEWORKS, checked_frameworks
from tuner.export.kernel import ExportKernel
from tuner.export.library import export_library
from tuner.export.manifest import read_manifest, verify_hashes
from tuner.runtime.loader import aligned_empty
from tuner.runtime.toolchain import Toolchain

Make = Callable[..., ExportKernel]
SYMBOL = "elementwise_n1024_double"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, kernel: Make, toolchain: Toolchain) -> Path:
    directory = tmp_path_factory.mktemp("frameworks") / "kit"
    export_library([kernel()], directory, "kit", toolchain=toolchain, frameworks=tuple(FRAMEWORKS))
    return directory


def test_names_are_checked() -> None:
    assert checked_frameworks("torch, jax,torch", "kit") == ("torch", "jax")
    assert checked_frameworks("c", "c") == ("c",)
    for text in ("tensorflow", "", "torch,caffe"):
        with pytest.raises(ExportRefused, match="give one or more of c, torch, jax, onnxruntime"):
            checked_frameworks(text, "kit")
    with pytest.raises(ExportRefused, match="choose another by --name"):
        checked_frameworks("jax", "jax")


def test_each_framework_adds_its_own(
    tmp_path: Path, kernel: Make, toolchain: Toolchain, exported: Path
) -> None:
    export_library([kernel()], tmp_path / "plain", "kit", toolchain=toolchain)
    plain = set(read_manifest(tmp_path / "plain").files)
    added = set(read_manifest(exported).files) - plain
    assert {path.split("/")[0] for path in added} == {"kit", "huggingface"}
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", tmp_path / "plain" / "lib" / "libkit.so"],
        capture_output=True, text=True, check=True, timeout=30,
    ).stdout  # fmt: skip
    assert f"__tvm_ffi_{SYMBOL}" in shown
    assert "RegisterCustomOps" not in shown
    assert "__xla_ffi_" not in shown
    verify_hashes(exported)


def test_the_hub_folder_is_described(exported: Path, toolchain: Toolchain) -> None:
    (variant,) = (exported / "huggingface" / "build").iterdir()
    assert variant.name == f"torch-stable-abi24-cpu-{toolchain.machine}-linux"
    metadata = json.loads((variant / "metadata.json").read_text())
    assert metadata["backend"] == {"type": "cpu"}
    files = {
        path.relative_to(variant).as_posix(): b64encode(sha256(path.read_bytes()).digest()).decode()
        for path in variant.rglob("*")
        if path.is_file() and path.name != "metadata.json"
    }
    assert metadata["digest"] == {"algorithm": "sha256", "files": files}


class _Base(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("type", ctypes.c_int), ("next", ctypes.c_void_p)]


class _Version(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("extension", ctypes.c_void_p),
        ("major", ctypes.c_int), ("minor", ctypes.c_int),
    ]  # fmt: skip


class _Metadata(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("version", _Version), ("traits", ctypes.c_uint32)]


class _MetadataExtension(ctypes.Structure):
    _fields_ = [("base", _Base), ("metadata", ctypes.c_void_p)]


class _ErrorCreate(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("extension", ctypes.c_void_p),
        ("message", ctypes.c_char_p), ("code", ctypes.c_int),
    ]  # fmt: skip


_CREATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_ErrorCreate))


class _Api(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("version", _Version),
        ("internal", ctypes.c_void_p), ("create_error", _CREATE),
    ]  # fmt: skip


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("dtype", ctypes.c_int),
        ("data", ctypes.c_void_p), ("rank", ctypes.c_int64), ("dims", ctypes.c_void_p),
    ]  # fmt: skip


class _Values(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("count", ctypes.c_int64),
        ("types", ctypes.c_void_p), ("values", ctypes.c_void_p),
    ]  # fmt: skip


class _Frame(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("api", ctypes.c_void_p),
        ("context", ctypes.c_void_p), ("stage", ctypes.c_int), ("inputs", _Values),
        ("outputs", _Values),
    ]  # fmt: skip


class _Xla:
    """A caller of handlers, with the structures of XLA's C interface."""

    def __init__(self, path: Path) -> None:
        self.handler = ctypes.CDLL(str(path))[f"__xla_ffi_{SYMBOL}"]
        self.handler.restype = ctypes.c_void_p
        self.errors: list[tuple[int, str]] = []
        self.create = _CREATE(self._error)
        self.api = _Api(create_error=self.create)
        self.kept: list[Any] = []

    def _error(self, arguments: Any) -> int:
        self.errors.append((arguments[0].code, arguments[0].message.decode()))
        return 1

    def values(self, arrays: list[np.ndarray[Any, Any]], dtype: int) -> _Values:
        shapes = [(ctypes.c_int64 * array.ndim)(*array.shape) for array in arrays]
        buffers = [
            _Buffer(0, None, dtype, array.ctypes.data, array.ndim, ctypes.addressof(shape))
            for array, shape in zip(arrays, shapes, strict=True)
        ]
        types = (ctypes.c_int * len(arrays))(*([1] * len(arrays)))
        places = (ctypes.c_void_p * len(arrays))(*map(ctypes.addressof, buffers))
        self.kept += [shapes, buffers, types, places]
        return _Values(0, None, len(arrays), ctypes.addressof(types), ctypes.addressof(places))

    def call(self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], dtype: int = 11) -> int | None:
        frame = _Frame(
            api=ctypes.addressof(self.api),
            stage=3,
            inputs=self.values([x], dtype),
            outputs=self.values([y], 11),
        )
        answer: int | None = self.handler(ctypes.byref(frame))
        return answer

    def version(self) -> tuple[int, int]:
        metadata = _Metadata(version=_Version(major=-1, minor=-1))
        extension = _MetadataExtension(_Base(0, 1, None), ctypes.addressof(metadata))
        frame = _Frame(extension=ctypes.addressof(extension))
        assert self.handler(ctypes.byref(frame)) is None
        return metadata.version.major, metadata.version.minor


def test_the_handler_of_xla(exported: Path) -> None:
    xla = _Xla(exported / "lib" / "libkit.so")
    assert xla.version() == (0, 1)
    x, y = aligned_empty((1024,), "float32"), aligned_empty((1024,), "float32")
    x[...] = np.arange(1024)
    assert xla.call(x, y) is None
    np.testing.assert_array_equal(y, 2 * x)
    raw = np.empty(1032, np.float32)
    shifted = raw[1 + (-raw.ctypes.data % 64 == 60) :][:1024]
    shifted[...] = x + 1
    assert xla.call(shifted, y) is None
    np.testing.assert_array_equal(y, 2 * (x + 1))
    assert xla.call(x[:5], y) == 1
    assert xla.call(x, y, dtype=12) == 1
    assert xla.call(x, y, dtype=99) == 1
    assert [text for _, text in xla.errors] == [
        f"{SYMBOL}: X has shape (5), expected (1024)",
        f"{SYMBOL}: X has dtype float64, expected float32",
        f"{SYMBOL}: X has XLA's dtype 99, expected another",
    ]


JAX = f"""
import jax, jax.numpy as jnp, numpy as np
from kit import DTypeError, ShapeError, jax as functions
x = jnp.arange(1024, dtype=jnp.float32)
double = functions.{SYMBOL}
assert (double(x) == 2 * x).all()
assert (jax.jit(lambda v: double(v + 1) - 1)(x) == 2 * (x + 1) - 1).all()
assert (jax.vmap(double)(jnp.stack([x, x + 1]))[1] == 2 * (x + 1)).all()
for wrong, error in ((x.astype(jnp.int32), DTypeError), (x[:5], ShapeError)):
    try:
        double(wrong)
        raise SystemExit("no error")
    except error:
        pass
try:
    jax.grad(lambda v: double(v).sum())(x)
    raise SystemExit("no error")
except ValueError as error:
    assert "differentiated" in str(error)
"""

HUB = f"""
import sys, torch
sys.path.insert(0, sys.argv[1])
import importlib.util
spec = importlib.util.spec_from_file_location("hub_kit", sys.argv[1] + "/__init__.py",
                                              submodule_search_locations=[sys.argv[1]])
module = importlib.util.module_from_spec(spec)
sys.modules["hub_kit"] = module
spec.loader.exec_module(module)
x = torch.arange(1024, dtype=torch.float32)
assert torch.equal(module.{SYMBOL}(x), 2 * x)
assert torch.equal(torch.ops.kit.{SYMBOL}(x), 2 * x)
program = torch.export.export(torch.nn.Sequential(torch.nn.ReLU()), (x,))
try:
    module.{SYMBOL}(x.requires_grad_()).sum().backward()
    raise SystemExit("no error")
except RuntimeError as error:
    assert "no autograd formula" in str(error)
"""


def _run(program: str, exported: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={"PYTHONPATH": str(exported), "JAX_PLATFORMS": "cpu"},
        capture_output=True, text=True, check=False, timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(find_spec("jax") is None, reason="no jax here")
def test_functions_are_calls_of_jax(exported: Path) -> None:
    _run(JAX, exported)


@pytest.mark.slow  # a process that loads PyTorch
@pytest.mark.skipif(find_spec("torch") is None, reason="no torch here")
def test_the_hub_folder_loads_by_its_path(exported: Path) -> None:
    (variant,) = (exported / "huggingface" / "build").iterdir()
    _run(HUB, exported, str(variant))


def test_functions_are_operators_of_onnx_runtime(exported: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [
            helper.make_node("Neg", ["x"], ["n"]),
            helper.make_node(SYMBOL, ["n"], ["y"], domain="kit"),
        ],
        "graph",
        [helper.make_tensor_value_info("x", kind, None)],
        [helper.make_tensor_value_info("y", kind, None)],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("kit", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(exported / "lib" / "libkit.so"))
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    x = np.arange(1024, dtype=np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], -2 * x)
    with pytest.raises(Exception, match=r"X has shape \(5\), expected \(1024\)"):
        session.run(None, {"x": x[:5]})

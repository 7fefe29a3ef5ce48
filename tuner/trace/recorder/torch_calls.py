"""PyTorch's calls: operators as the program calls them, each counted and timed.

What counts them is the C++ beside this file. It has to be compiled against the PyTorch of the
program, when that is recorded first; the library is kept with the user's other caches.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

from .output import Output

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_calls.cpp")
STANDARDS = ("c++20", "c++17")  # that headers of PyTorch ask for, the newest first
COMPILE_S = 300.0
# The numbers of c10::ScalarType.
DTYPES = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32",
    "complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16",
)  # fmt: skip
_DESCRIBE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)


def record(torch: Any, output: Output, share: float) -> Callable[[], None] | None:
    """Begins to record; returns what a forked child calls, None where it cannot be done."""
    try:
        path = _compiled(torch)
    except (OSError, subprocess.SubprocessError) as error:
        output.note(f"PyTorch's calls are not recorded: what counts them needs a C++ compiler "
                    f"and the headers of PyTorch: {_said(error)}")  # fmt: skip
        return None
    library = ctypes.CDLL(path)
    library.tuner_trace_start.argtypes = [ctypes.c_void_p, _DESCRIBE, ctypes.c_double]
    library.tuner_trace_count.argtypes = [ctypes.c_void_p]

    def describe(text: bytes) -> int:
        try:
            return output.describe(_named(json.loads(text)))
        except Exception:
            return 0

    callback = _DESCRIBE(describe)
    # Threads call it as long as the process lives, whatever this module's fate is.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))
    library.tuner_trace_start(output.address(), callback, share)
    return lambda: library.tuner_trace_count(output.address())


def _named(call: dict[str, Any]) -> dict[str, Any]:
    """With names of dtypes."""
    for argument in call["arguments"]:
        for tensor in (argument, *argument.get("list", ())):
            number = tensor.get("dtype")
            if number is not None:
                tensor["dtype"] = DTYPES[number] if number < len(DTYPES) else f"dtype {number}"
    return call


def _compiled(torch: Any) -> str:
    """The library for this PyTorch. Raises OSError and SubprocessError."""
    home = os.path.dirname(os.path.abspath(torch.__file__))
    compiler = os.environ.get("CXX") or "c++"
    with open(SOURCE, "rb") as file:
        parts = [file.read(), torch.__version__.encode(), home.encode(), compiler.encode()]
    name = hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(root, "tuner", "trace")
    path = os.path.join(folder, f"{name}.so")
    if not os.path.exists(path):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as part:
            made = os.path.join(part, "calls.so")
            _compile(compiler, home, _macros(torch), made)
            os.replace(made, path)
    return path


def _macros(torch: Any) -> list[str]:
    """Of which the layout of PyTorch's objects depends."""
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return [f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *([] if torch.version.debug else ["-DNDEBUG"])]


def _compile(compiler: str, home: str, macros: list[str], path: str) -> None:
    libraries = os.path.join(home, "lib")
    error: Exception | None = None
    for standard in STANDARDS:
        command = [
            *compiler.split(), f"-std={standard}", "-O2", "-w", "-fPIC", "-shared", "-pthread",
            *macros, "-I", os.path.join(home, "include"), "-o", path,
            SOURCE, "-L", libraries, "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{libraries}",
        ]  # fmt: skip
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TUNER_TRACE_", "TUNER_RUN_"))
        }
        try:
            subprocess.run(
                command, check=True, capture_output=True, timeout=COMPILE_S, env=environment
            )
        except subprocess.CalledProcessError as refused:
            error = error or refused
        else:
            return
    assert error is not None, "there are standards"
    raise error


def _said(error: Exception) -> str:
    """The compiler's first error, or why there is none."""
    if isinstance(error, subprocess.CalledProcessError):
        lines = error.stderr.decode(errors="replace").splitlines()
        return next((line for line in lines if "error" in line), "it failed")
    return str(error)

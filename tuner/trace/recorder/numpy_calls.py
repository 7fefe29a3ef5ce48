"""NumPy's calls: universal functions, and the array functions that compute as a whole.

Their objects' `vectorcall` slots are pointed at the C code beside this file, see there.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
from collections.abc import Iterator
from typing import Any

from .arguments import described
from .output import Output

LIBRARY = "numpy_calls.so"
# Of PyTypeObject: where tp_vectorcall_offset lies, eight words into it.
OFFSET_PLACE = 7 * ctypes.sizeof(ctypes.c_void_p)
# Array functions whose parts are not to be seen one by one.
WHOLE = (
    "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "average", "clip", "concatenate",
    "convolve", "cov", "cross", "cumprod", "cumsum", "dot", "einsum", "inner", "interp", "kron",
    "linalg.norm", "matrix_transpose", "max", "mean", "median", "min", "nanmean", "nansum", "outer",
    "percentile", "prod", "quantile", "sort", "stack", "std", "sum", "take", "tensordot", "trace",
    "var", "vdot", "where",
)  # fmt: skip
# What methods such as x.sum() call, by the function's name.
METHODS = ("all", "amax", "amin", "any", "clip", "mean", "prod", "std", "sum", "var")


def record(numpy: Any, output: Output, folder: str, share: float) -> Any:
    """Begins to record; returns what a forked child calls. None where it cannot be done."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        output.note("NumPy's calls are not recorded: this Python has no GIL")
        return None
    if sys.implementation.name != "cpython":
        output.note("NumPy's calls are not recorded: this Python is not CPython")
        return None
    library = ctypes.PyDLL(os.path.join(folder, LIBRARY))
    names: dict[int, str] = {}

    def describe(callable_: Any, arguments: tuple[Any, ...], keywords: Any) -> int:
        try:
            return output.describe(described_call(names[id(callable_)], arguments, keywords))
        except Exception:
            return 0

    callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(
        lambda callable_, arguments, keywords: describe(callable_, arguments, _object(keywords))
    )
    library.tuner_trace_start.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double
    ]  # fmt: skip
    library.tuner_trace_restart.argtypes = [ctypes.c_void_p]
    library.tuner_trace_wrap.argtypes = [ctypes.py_object, ctypes.c_ssize_t, ctypes.c_int]
    library.tuner_trace_start(
        output.address(), ctypes.cast(callback, ctypes.c_void_p), id(numpy.ndarray), share
    )
    for name, function, whole in functions(numpy):
        offset = ctypes.c_ssize_t.from_address(id(type(function)) + OFFSET_PLACE).value
        names[id(function)] = name
        if offset > 0:
            library.tuner_trace_wrap(function, offset, whole)
    # The library calls it as long as the process lives, whatever this module's fate is.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))
    return lambda: library.tuner_trace_restart(output.address())


def _object(address: int | None) -> Any:
    """The object at an address; () for none."""
    return ctypes.cast(address, ctypes.py_object).value if address else ()


def functions(numpy: Any) -> Iterator[tuple[str, Any, int]]:
    """Name, object, and whether the calls within are part of it."""
    for value in vars(numpy).values():
        if isinstance(value, numpy.ufunc):
            yield value.__name__, value, 0
    for module in ("numpy.linalg._umath_linalg", "numpy.fft._pocketfft_umath"):
        prefix = module.split(".")[1]
        for name, value in sorted(vars(sys.modules.get(module, object)).items()):
            if isinstance(value, numpy.ufunc):
                yield f"{prefix}.{name}", value, 0
    kind = type(numpy.dot)
    for name in WHOLE:
        function = numpy
        for part in name.split("."):
            function = getattr(function, part, None)
        if type(function) is kind and kind.__name__ == "_ArrayFunctionDispatcher":
            yield name, function, 1
    methods = sys.modules.get("numpy._core._methods") or sys.modules.get("numpy.core._methods")
    for name in METHODS:
        function = getattr(methods, "_" + name, None)
        if function is not None:
            yield name.replace("amax", "max").replace("amin", "min"), function, 1


def described_call(
    name: str, arguments: tuple[Any, ...], keywords: tuple[str, ...]
) -> dict[str, Any]:
    positional = len(arguments) - len(keywords)
    listed = [described(argument) for argument in arguments[:positional]]
    for keyword, argument in zip(keywords, arguments[positional:], strict=True):
        if argument is None:
            continue  # a default
        listed.append({"name": keyword, **described(argument)})
    return {"library": "numpy", "operator": f"numpy.{name}", "arguments": listed}

"""NumPy's calls, answered by kernels where CPython calls NumPy, see the C code beside this.

The first call of each kind is computed by both. Its kernel answers the others if its array
lies in memory as NumPy's and has the same values.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
from collections.abc import Callable
from typing import Any

from ..recorder.numpy_calls import OFFSET_PLACE, described_call, functions
from .plan import TOLERANCE, WRONG, Plan

LIBRARY = "numpy_calls.so"
NONE, MOST_INPUTS, MOST_RANK = -1, 5, 8  # as in numpy_calls.c
OPTIONS = ("axis", "keepdims", "optimize")  # that a call with a kernel may have by name
_MATCH = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.py_object, ctypes.c_void_p)
_CONFIRM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.py_object, ctypes.py_object)


class _Kernel(ctypes.Structure):
    """As `Kernel` in numpy_calls.c."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("inputs", ctypes.c_int),
        ("arguments", ctypes.c_int * MOST_INPUTS),
        ("types", ctypes.c_int * MOST_INPUTS),
        ("type", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("extents", ctypes.c_ssize_t * MOST_RANK),
        ("releases", ctypes.c_int),
    )


def replace(numpy: Any, plan: Plan) -> Callable[[], None] | None:
    """Begins to answer calls; returns what a forked child calls, None where nothing can be."""
    numbers = plan.of_library("numpy")
    if not numbers:
        return None
    if sysconfig.get_config_var("Py_GIL_DISABLED") or sys.implementation.name != "cpython":
        plan.output.note("NumPy's calls are left to NumPy: this Python is no CPython with a GIL")
        return None
    return _Replacement(numpy, plan, numbers).begin()


class _Replacement:
    """What the C code calls, as long as the process lives."""

    def __init__(self, numpy: Any, plan: Plan, numbers: list[int]) -> None:
        self._numpy, self._plan = numpy, plan
        self._wrapped: dict[int, tuple[str, Any]] = {}  # names and functions, by their addresses
        self._kernels = (_Kernel * len(plan.calls))()
        for number in numbers:
            _fill(self._kernels[number], numpy, plan, number)
        self._match, self._confirm = _MATCH(self._matched), _CONFIRM(self._confirmed)
        self._operators = {plan.calls[number]["operator"] for number in numbers}

    def begin(self) -> Callable[[], None]:
        numpy, plan = self._numpy, self._plan
        library = ctypes.PyDLL(os.path.join(plan.folder, LIBRARY))
        library.tuner_run_wrap.argtypes = [ctypes.py_object, ctypes.c_ssize_t, ctypes.c_int]
        library.tuner_run_count.argtypes = [ctypes.c_void_p]
        library.tuner_run_start.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int]
        version = tuple(int(part) for part in numpy.__version__.split(".")[:2])
        library.tuner_run_start(
            _table(numpy),
            ctypes.addressof(self._kernels),
            plan.counts_address(),
            ctypes.cast(self._match, ctypes.c_void_p),
            ctypes.cast(self._confirm, ctypes.c_void_p),
            version >= (1, 22),
        )
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        for name, function, whole in functions(numpy):
            if f"numpy.{name}" not in self._operators:
                continue
            offset = ctypes.c_ssize_t.from_address(id(type(function)) + OFFSET_PLACE).value
            self._wrapped[id(function)] = name, function
            if offset > 0:
                library.tuner_run_wrap(function, offset, whole)
        return lambda: library.tuner_run_count(plan.counts_address())

    def _matched(self, function: Any, arguments: tuple[Any, ...], keywords: int | None) -> int:
        """The number of the planned call that this is; NONE for none."""
        try:
            names = ctypes.cast(keywords, ctypes.py_object).value if keywords else ()
            given = arguments[len(arguments) - len(names) :]
            for name, value in zip(names, given, strict=True):
                if value is not None and name not in OPTIONS:
                    return NONE
            name, _ = self._wrapped[id(function)]
            call = described_call(name, arguments, names)
            number = self._plan.number("numpy", call["operator"], call["arguments"])
            return NONE if number is None else number
        except Exception:
            return NONE

    def _confirmed(self, number: int, right: Any, result: Any) -> int:
        """Whether a kernel's array is NumPy's."""
        try:
            reason = self._difference(right, result)
        except Exception as error:
            reason = repr(error)
        if reason is None:
            return 1
        operator = self._plan.calls[number]["operator"]
        self._plan.output.note(f"{operator} is left to NumPy: {reason}")
        return 0

    def _difference(self, right: Any, result: Any) -> str | None:
        """How a kernel's array is not NumPy's."""
        numpy = self._numpy
        if type(right) is not type(result):
            return "its result is an object of another kind"
        if right.dtype != result.dtype or right.shape != result.shape:
            return "its result has another dtype or shape"
        if right.strides != result.strides:
            return "its result lies otherwise in memory"
        if isinstance(right, numpy.ndarray) and not right.flags.owndata:
            return "its result is a view, in which the program may write"
        right, result = numpy.asarray(right), numpy.asarray(result)
        if right.dtype.kind not in "fc":
            return WRONG if numpy.mean(right != result) > TOLERANCE else None
        finite = numpy.isfinite(right)
        if not numpy.array_equal(right[~finite], result[~finite], equal_nan=True):
            return WRONG
        largest = numpy.max(numpy.abs(right[finite]), initial=0.0)
        error = numpy.max(numpy.abs(right[finite] - result[finite]), initial=0.0)
        return None if error <= TOLERANCE * largest else WRONG


def _fill(kernel: _Kernel, numpy: Any, plan: Plan, number: int) -> None:
    call = plan.calls[number]
    result = call["result"]
    kernel.function = ctypes.cast(plan.function(number), ctypes.c_void_p)
    kernel.inputs = len(call["inputs"])
    kernel.arguments[: kernel.inputs] = call["inputs"]
    kernel.types[: kernel.inputs] = [numpy.dtype(dtype).num for dtype in call["dtypes"]]
    kernel.type = numpy.dtype(result["dtype"]).num
    kernel.rank = len(result["shape"])
    kernel.extents[: kernel.rank] = result["shape"]
    kernel.releases = call["long"]


def _table(numpy: Any) -> int:
    """NumPy's functions for C."""
    core = sys.modules.get("numpy._core._multiarray_umath")
    core = core or sys.modules["numpy.core._multiarray_umath"]
    api = ctypes.pythonapi.PyCapsule_GetPointer
    api.restype, api.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(api(core._ARRAY_API, None))

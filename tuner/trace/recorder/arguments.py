"""Arguments of a call as JSON values: tensors by shape, strides and dtype, the rest by value.

Strides count elements; they are null where bytes do not make whole elements.
"""

from __future__ import annotations

from typing import Any

LONGEST = 64  # entries of a list, characters of a text
PLAIN = (bool, int, float, str, type(None))


def described(argument: Any) -> dict[str, Any]:
    """An array, a list of arguments, a plain value, or the name of another's type."""
    if is_array(argument):
        return array(argument)
    if type(argument) in (list, tuple) and len(argument) <= LONGEST:
        if all(type(entry) in PLAIN for entry in argument):
            return {"value": list(argument)}
        return {"list": [described(entry) for entry in argument]}
    if type(argument) is complex or (type(argument) is str and len(argument) > LONGEST):
        return {"type": type(argument).__name__}
    if type(argument) in PLAIN:
        return {"value": argument}
    if hasattr(argument, "dtype") and getattr(argument, "shape", None) == ():
        return array(argument)  # a NumPy scalar
    return {"type": f"{type(argument).__module__}.{type(argument).__qualname__}"}


def is_array(argument: Any) -> bool:
    kind = type(argument)
    return kind.__name__ == "ndarray" and kind.__module__ == "numpy"


def array(given: Any) -> dict[str, Any]:
    size = given.dtype.itemsize
    whole = size > 0 and all(stride % size == 0 for stride in given.strides)
    return {
        "shape": list(given.shape),
        "strides": [stride // size for stride in given.strides] if whole else None,
        "dtype": given.dtype.name,
    }

"""Calls on lists of tensors, as optimisers make them, taken apart into calls on each tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

_NAMES = (
    "abs", "add", "addcdiv", "addcmul", "div", "exp", "lerp", "mul", "neg", "pow", "reciprocal",
    "sqrt", "sub",
)  # fmt: skip
# The factors of all tensors are elements of one tensor.
_WHOLE = ("aten._foreach_addcdiv.Tensor", "aten._foreach_addcmul.Tensor")
_FACTORS = ("value", "scalars")  # by keyword in a call on one tensor, by position in lists


def rules() -> Mapping[Any, Callable[..., Any]]:
    """For each operator on lists of tensors, what gives the list of its results.

    The optimisers of PyTorch call them on all parameters at once, so that an optimiser's
    step is one region.
    """
    made: dict[Any, Callable[..., Any]] = {}
    for name in _NAMES:
        packet = getattr(torch.ops.aten, f"_foreach_{name}")
        for overload in (getattr(packet, variant) for variant in packet.overloads()):
            if str(overload) not in _WHOLE and not str(overload).endswith("out"):
                made[overload] = _of_elements(getattr(torch, name), overload._schema.arguments)
    return made


def _of_elements(function: Callable[..., Any], parameters: Any) -> Callable[..., list[Any]]:
    named = {
        parameter.name: "value" if parameter.name in _FACTORS else parameter.name
        for parameter in parameters
        if parameter.kwarg_only
        or (parameter.name in _FACTORS and function in (torch.addcmul, torch.addcdiv))
    }

    def on_lists(*given: Any, **options: Any) -> list[Any]:
        values = {
            parameter.name: given[place]
            if place < len(given)
            else options.get(parameter.name, parameter.default_value)
            for place, parameter in enumerate(parameters)
        }
        count = next(len(value) for value in values.values() if isinstance(value, list | tuple))
        results = []
        for place in range(count):
            of_one = {
                name: value[place] if isinstance(value, list | tuple) else value
                for name, value in values.items()
            }
            keywords = {keyword: of_one.pop(name) for name, keyword in named.items()}
            results.append(function(*of_one.values(), **keywords))
        return results

    return on_lists

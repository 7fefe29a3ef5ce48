"""PyTorch's calls, answered by kernels where its dispatcher calls the function for CPUs.

An operator with kernels gets a function of Python there, which looks for a kernel of exactly
these arguments and else calls the function that stood there. An operator that PyTorch composes
of others has it before autograd, and composes where a gradient is asked for. So what comes
before, such as subclasses, autocast, vmap or tracing, is as it was.

The first call of each kind is computed by both. Its kernel answers the others if its tensor
lies in memory as PyTorch's and has the same values.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..recorder.torch_calls import DTYPES
from .plan import TOLERANCE, WRONG, Plan

ALIGNMENT = 64
COMPOSED = "CompositeImplicitAutograd"


def replace(torch: Any, plan: Plan) -> None:
    """Begins to answer calls."""
    overloads: dict[str, list[int]] = {}
    for number in plan.of_library("torch"):
        overloads.setdefault(plan.calls[number]["overload"], []).append(number)
    if not overloads:
        return
    if not hasattr(torch.library, "get_kernel"):
        plan.output.note(
            f"PyTorch's calls are left to PyTorch: {torch.__version__} does not give the function "
            f"that an operator has"
        )
        return
    library = torch.library.Library("aten", "IMPL")
    plan.kept = library  # what it registers is gone with it
    for overload in overloads:
        operator = _Operator(torch, plan, overload)
        composed = torch._C._dispatch_has_kernel_for_dispatch_key(overload, COMPOSED)
        keys = ("AutogradCPU", "CPU") if composed else ("CPU",)
        before = {key: torch.library.get_kernel(overload, key) for key in keys}
        for key in keys:
            function = operator.function(before[key])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of an operator that has a function already
                library.impl(overload.removeprefix("aten::"), function, key, with_keyset=True)


class _Operator:
    """An overload of an operator, and the kernels for some of its arguments. Thread-safe."""

    def __init__(self, torch: Any, plan: Plan, overload: str) -> None:
        self._torch, self._plan = torch, plan
        self._name = overload.split(".", maxsplit=1)[0]
        name, _, variant = overload.removeprefix("aten::").partition(".")
        operator = getattr(getattr(torch.ops.aten, name), variant or "default")
        self._declared = operator._schema.arguments
        self._kernels: dict[Any, _Kernel | None] = {}  # by the arguments' key

    def function(self, library: Any) -> Callable[..., Any]:
        """What the dispatcher calls instead of a function of the library."""
        kernels, key_of, called = self._kernels, _key_of(self._torch), library.call_boxed
        is_odd = _oddities(self._torch)

        def answered(keyset: Any, *arguments: Any, **named: Any) -> Any:
            key = None if is_odd() else key_of(arguments, named)
            if key is None:
                return called(keyset, *arguments, **named)
            if key not in kernels:
                kernels[key] = self._matched(arguments, named)
            kernel = kernels[key]
            if kernel is None:
                return called(keyset, *arguments, **named)
            return kernel(arguments, lambda: called(keyset, *arguments, **named))

        return answered

    def _matched(self, arguments: Sequence[Any], named: dict[str, Any]) -> _Kernel | None:
        """The kernel of the planned call that this is."""
        try:
            listed = [_described(self._torch, value) for value in self._given(arguments, named)]
            number = self._plan.number("torch", self._name, listed)
            return None if number is None else _Kernel(self._torch, self._plan, number)
        except Exception:
            return None

    def _given(self, arguments: Sequence[Any], named: dict[str, Any]) -> Iterator[Any]:
        """All arguments, defaults too."""
        for number, declared in enumerate(self._declared):
            if number < len(arguments):
                yield arguments[number]
            else:
                yield named.get(declared.name, declared.default_value)


class _Kernel:
    """A kernel for calls of one kind."""

    def __init__(self, torch: Any, plan: Plan, number: int) -> None:
        call = plan.calls[number]
        result = call["result"]
        self._torch, self._plan, self._number = torch, plan, number
        self._function = plan.function(number)
        self._function.argtypes = [ctypes.c_void_p] * (len(call["inputs"]) + 1)
        self._inputs = tuple(call["inputs"])
        self._made = (result["shape"], result["strides"], getattr(torch, result["dtype"]))
        self._is_checked = self._is_refused = False

    def __call__(self, arguments: Sequence[Any], library: Callable[[], Any]) -> Any:
        """The call's result, by the kernel where it can be."""
        result = None if self._is_refused else self._computed(arguments)
        if result is not None and self._is_checked:
            self._plan.answered(self._number)
            return result
        self._plan.left(self._number)
        right = library()
        if result is not None:
            self._check(right, result)
        return right

    def _computed(self, arguments: Sequence[Any]) -> Any:
        """The kernel's tensor; None where it does not take these."""
        try:
            pointers = [arguments[number].data_ptr() for number in self._inputs]
        except RuntimeError:  # a tensor without memory, as of a transformation
            return None
        shape, strides, dtype = self._made
        result = self._torch.empty_strided(shape, strides, dtype=dtype)
        pointers.append(result.data_ptr())
        for pointer in pointers:
            if pointer % ALIGNMENT:
                return None
        return None if self._function(*pointers) else result

    def _check(self, right: Any, result: Any) -> None:
        reason = self._difference(right, result)
        if reason is None:
            self._is_checked = True
            return
        self._is_refused = True
        operator = self._plan.calls[self._number]["operator"]
        self._plan.output.note(f"{operator} is left to PyTorch: {reason}")

    def _difference(self, right: Any, result: Any) -> str | None:
        """How a kernel's tensor is not PyTorch's."""
        torch = self._torch
        if right.dtype != result.dtype or right.shape != result.shape:
            return "its result has another dtype or shape"
        if right.stride() != result.stride():
            return "its result lies otherwise in memory"
        if right.is_complex():
            right, result = torch.view_as_real(right), torch.view_as_real(result)
        if not right.is_floating_point():
            share = float((right != result).double().mean())
            return WRONG if share > TOLERANCE else None
        finite = torch.isfinite(right)
        if not torch.equal(torch.isfinite(result), finite):
            return WRONG
        right, result = right[finite].double(), result[finite].double()
        if right.numel() and (right - result).abs().max() > TOLERANCE * right.abs().max():
            return WRONG
        return None


def _oddities(torch: Any) -> Callable[[], bool]:
    """Whether a thread is within a transformation that a kernel would not see."""
    forward = torch.autograd.forward_ad
    transformed = torch._C._functorch.peek_interpreter_stack

    def is_odd() -> bool:
        return forward._current_level >= 0 or transformed() is not None

    return is_odd


class _Odd(Exception):
    """A call that no kernel answers, whatever its shapes."""


def _key_of(torch: Any) -> Callable[[Sequence[Any], dict[str, Any]], Any]:
    """What distinguishes calls; None for one whose gradient is asked for, or that has what
    is no plain tensor, number, text or list of them."""
    tensors, plain = (torch.Tensor, torch.nn.Parameter), (bool, int, float, str, type(None))
    asks, dtype = torch.is_grad_enabled, torch.dtype

    def part(argument: Any) -> Any:
        kind = type(argument)
        if kind in tensors:
            if argument.requires_grad and asks():
                raise _Odd
            return argument.shape, argument.stride(), argument.dtype
        if kind in plain or kind is dtype:
            return kind, argument
        if kind in (list, tuple):
            return kind, tuple([part(entry) for entry in argument])
        raise _Odd

    def key_of(arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        try:
            parts = [part(argument) for argument in arguments]
            parts += [(name, part(argument)) for name, argument in named.items()]
        except _Odd:
            return None
        return tuple(parts)

    return key_of


def _described(torch: Any, value: Any) -> dict[str, Any]:
    """An argument as the record has it."""
    if isinstance(value, torch.Tensor):
        return {
            "shape": list(value.shape),
            "strides": list(value.stride()),
            "dtype": str(value.dtype).removeprefix("torch."),
        }
    if isinstance(value, torch.dtype):
        return {"value": DTYPES.index(str(value).removeprefix("torch."))}
    return {"value": list(value) if type(value) is tuple else value}

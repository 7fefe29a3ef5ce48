"""What AOTAutograd's trace of a graph depends on, as a key for what is kept of the trace.

There is a key only where the graph and the state of the process tell all of it: a graph of
PyTorch's own functions on plain tensors, without tensors of its own. Any other graph is traced in
each process.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch._decomp import global_decomposition_table
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.autograd_cache import check_node_safe
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from tuner.errors import TunerError
from tuner.version import __version__

SCHEMA = 1
_ROOT = Path(__file__).resolve().parents[1]
_READERS = ("models", "runtime", "torch", "workload")  # packages that decide what is kept
_OPERATORS = ("aten", "prims", "prim")  # namespaces whose operators no user defines
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_MODULES = ("torch", "math", "_operator")
_ARGUMENTS = (
    int, float, bool, complex, str, type(None), type(...),
    torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip


class NotKept(TunerError):
    """A trace that each process has to make, and why."""


def trace_key(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> str:
    """The key of the trace of a graph of Dynamo's. Raises NotKept."""
    _check_rules()
    document = {
        "schema": SCHEMA,
        "versions": [__version__, _code(), torch.__version__, torch.version.git_version],
        "python": [sys.version, platform.machine()],
        "graph": _graph(module),
        "inputs": _inputs(inputs),
        "state": _state(),
    }
    return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@cache
def _code() -> str:
    """A hash of our own code, since a version may change before its number does."""
    digest = sha256()
    for package in _READERS:
        for path in sorted((_ROOT / package).rglob("*.py")):
            digest.update(f"{path.relative_to(_ROOT)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _graph(module: torch.fx.GraphModule) -> list[Any]:
    """A graph's code, and the functions that its names stand for."""
    owned = (module.children(), module.parameters(), module.buffers())
    if any(next(each, None) is not None for each in owned):
        raise NotKept("the graph has tensors or graphs of its own")
    functions = []
    for node in module.graph.nodes:
        if node.op not in ("placeholder", "call_function", "call_method", "output"):
            raise NotKept(f"the graph has a node of the kind {node.op}")
        if node.op == "placeholder" and node.args:
            raise NotKept(f"input {node.name!r} has a default")
        check_node_safe(node)
        torch.fx.node.map_aggregate((node.args, node.kwargs), _checked)
        if node.op == "call_function":
            functions.append(_name(node.target))
    return [module.graph.python_code("self").src, functions]


def _checked(argument: Any) -> Any:
    if type(argument) not in (*_ARGUMENTS, torch.fx.Node):
        raise NotKept(f"an argument is a {type(argument).__name__}")
    return argument


def _name(function: Any) -> str:
    """The name of a function of PyTorch's or Python's own."""
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        name = str(function)
        if name.partition(".")[0] in _OPERATORS:
            return name
    elif not isinstance(function, torch._ops.HigherOrderOperator):
        name = str(torch.fx.node._get_qualified_name(function))
        top, dot, _ = name.partition(".")
        if top in _MODULES or not dot:  # of Python's builtins
            return name
    raise NotKept(f"{function} is no function of PyTorch's own")


def _inputs(inputs: Sequence[Any]) -> list[Any]:
    """How the inputs lie in memory, each in memory of its own."""
    context = TracingContext.try_get()
    if context is not None and context.fakify_first_call:
        raise NotKept("the inputs are not those of a call")
    storages = set()
    described = []
    for tensor in inputs:
        if type(tensor) not in (FakeTensor, torch.Tensor, torch.nn.Parameter):
            raise NotKept(f"an input is a {type(tensor).__name__}")
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise NotKept("an input is no plain tensor")
        extents = [*tensor.shape, *tensor.stride(), tensor.storage_offset()]
        if any(type(extent) is not int for extent in extents):
            raise NotKept("an input has a dynamic shape")
        storages.add(tensor.untyped_storage()._cdata)
        flags = (
            tensor.requires_grad, tensor.is_leaf, tensor.is_conj(), tensor.is_neg(),
            tensor.is_inference(), isinstance(tensor, torch.nn.Parameter),
        )  # fmt: skip
        described.append([str(tensor.dtype), str(tensor.device), tensor.dim(), extents, flags])
    if len(storages) < len(described):
        raise NotKept("two inputs share memory")
    return described


def _check_rules() -> None:
    """Refuses rules of others by which PyTorch's operators are taken apart. Its own rules, and
    ours, follow from the versions, so that no table of them has to be made."""
    for overload, rule in _python_rules():
        function: Any = rule.func if isinstance(rule, partial) else rule
        if function.__module__.partition(".")[0] not in ("torch", "tuner"):
            raise NotKept(f"the rule of {overload} is not PyTorch's own")


def _python_rules() -> Iterator[tuple[Any, Callable[..., Any]]]:
    """The rules of PyTorch's operators that are written in Python, as far as they are loaded."""
    for overload, rule in global_decomposition_table["post_autograd"].items():
        if str(overload).partition(".")[0] in _OPERATORS:
            yield overload, rule
    for namespace in _OPERATORS:
        packets = getattr(torch.ops, namespace)
        for packet in [getattr(packets, name) for name in packets]:
            for overload in [getattr(packet, name) for name in packet]:
                kernel = overload.py_kernels.get(_COMPOSITE)
                if kernel is not None and not isinstance(kernel, torch._C.DispatchKey):
                    yield overload, kernel


def _state() -> dict[str, Any]:
    """Settings of the process that a trace follows."""
    native = torch._C
    modes = _get_current_dispatch_mode_stack()
    if native._len_torch_function_stack() or any(
        type(mode) is not FakeTensorMode for mode in modes
    ):
        raise NotKept("a mode of PyTorch's sees all calls")
    if native._functorch.peek_interpreter_stack() is not None:
        raise NotKept("a transform of functions is under way")
    return {
        "gradients": [torch.is_grad_enabled(), torch.is_inference_mode_enabled()],
        "autocast": [
            (kind, torch.is_autocast_enabled(kind), str(torch.get_autocast_dtype(kind)))
            for kind in native._autocast_supported_devices()
        ],
        "autocast_cache": torch.is_autocast_cache_enabled(),
        "deterministic": [
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.utils.deterministic.fill_uninitialized_memory,
        ],
        "defaults": [str(torch.get_default_dtype()), str(torch.get_default_device())],
        # What decides between kernels of attention and of convolutions.
        "attention": [
            native._get_flash_sdp_enabled(),
            native._get_mem_efficient_sdp_enabled(),
            native._get_math_sdp_enabled(),
            native._get_cudnn_sdp_enabled(),
            native._get_overrideable_sdp_enabled(),
            [int(kernel) for kernel in native._get_sdp_priority_order()],
        ],
        "kernels": [
            native._get_mkldnn_enabled(),
            native._get_mkldnn_deterministic(),
            native._get_cudnn_enabled(),
            native._get_nnpack_enabled(),
            torch.get_float32_matmul_precision(),
            torch.backends.cpu.get_cpu_capability(),
            torch.get_num_threads(),
        ],
        "autograd": functorch_config.get_hash().hex(),
    }

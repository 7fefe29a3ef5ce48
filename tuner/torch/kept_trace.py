"""What is kept of AOTAutograd's trace of a graph, so that the next process needs none.

That is the graph with its regions as calls, as Python code; the regions, as graphs of expressions
and as PyTorch's code; and PyTorch's record of which inputs change and which results share memory
with them, by which it wraps the calls. It is the record that PyTorch keeps itself of graphs that
inductor compiles.
"""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.aot_autograd_result import BundledCompiledForward
from torch._functorch._aot_autograd.autograd_cache import (
    BypassAOTAutogradCache,
    should_use_local_autograd_cache,
)
from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler, make_boxed_func
from torch._inductor import config as inductor_config
from torch._inductor.output_code import OutputCode
from torch._inductor.utils import BoxedBool
from torch.fx.graph import _custom_builtins
from torch.fx.graph_module import _forward_from_src
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from tuner.models.library.region_cache import mark_used, put
from tuner.torch.layouts import Layouts, layouts_of
from tuner.torch.packed_graph import PackedGraph
from tuner.torch.partition import Partition
from tuner.torch.rebuilding import Function, OfPyTorch, eager_module, replacing
from tuner.torch.trace_key import NotKept, trace_key

_MOST_CONSTANT = 1 << 16  # elements of a tensor that is kept with the code
_DIGEST = 32  # bytes of a file's hash, which stands before its content

RegionOf = Callable[[PackedGraph, Layouts, OfPyTorch], Function]
"""What computes a region by its graph of expressions, given what PyTorch computes it by."""


@dataclass(frozen=True, kw_only=True)
class Code:
    """A graph of PyTorch's operators, and of calls of regions, as Python code."""

    source: str
    constants: Mapping[str, torch.Tensor]
    calls: tuple[str, ...]  # the names of the regions' functions, in their order

    def function(self, calls: Sequence[Function] = ()) -> Function:
        names = {name: builtin.obj for name, builtin in _custom_builtins.items()}
        names |= zip(self.calls, calls, strict=True)
        forward = _forward_from_src(self.source, names)
        return partial(forward, SimpleNamespace(**self.constants))


@dataclass(frozen=True, kw_only=True)
class KeptRegion:
    """A region without its trace."""

    graph: PackedGraph
    layouts: Layouts
    eager: Code


@dataclass(frozen=True, kw_only=True)
class KeptTrace:
    """A traced graph with its regions."""

    code: Code
    regions: tuple[KeptRegion, ...]


def kept_trace(
    traced: torch.fx.GraphModule,
    cut: Partition,
    graph: torch.fx.GraphModule,
    calls: Sequence[Function],
) -> KeptTrace:
    """What is kept of a traced graph, whose regions `graph` computes by `calls`. Raises NotKept."""
    for node in traced.graph.nodes:
        for value in tree_leaves(node.meta.get("val")):
            _check(value, node.name)
    regions = [
        KeptRegion(
            graph=region.packed,
            layouts=layouts_of(region),
            eager=_code_of(eager_module(traced, region.part)),
        )
        for region in cut.regions
    ]
    return KeptTrace(code=_code_of(graph, calls), regions=tuple(regions))


def _check(value: Any, name: str) -> None:
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.device != torch.device("cpu"):
            raise NotKept(f"{name!r} is no plain tensor of the CPU")
        extents = [*value.shape, *value.stride()]
    else:
        extents = [value]
    if any(isinstance(extent, torch.SymInt | torch.SymFloat | torch.SymBool) for extent in extents):
        raise NotKept(f"{name!r} has a dynamic shape")


def _code_of(module: torch.fx.GraphModule, calls: Sequence[Function] = ()) -> Code:
    generated = module.graph.python_code("self")
    names = dict[int, str]()
    for name, value in generated.globals.items():
        number = next((number for number, call in enumerate(calls) if call is value), None)
        if number is not None:
            names[number] = name
        elif name not in _custom_builtins or value is not _custom_builtins[name].obj:
            raise NotKept(f"its code needs {name}")
    constants = {
        node.target: _constant(getattr(module, node.target, None))
        for node in module.graph.nodes
        if node.op == "get_attr"
    }
    return Code(
        source=generated.src,
        constants=constants,
        calls=tuple(names[number] for number in range(len(calls))),
    )


def _constant(value: Any) -> torch.Tensor:
    if type(value) is not torch.Tensor or value.requires_grad:
        raise NotKept("it has an attribute that is no plain tensor")
    _check(value, "a constant")
    if value.numel() > _MOST_CONSTANT:
        raise NotKept(f"it has a constant of {value.numel()} elements")
    with _disable_current_modes():
        return value.clone()


class _Compiled(OutputCode):  # type: ignore[misc]  # of a package without types
    """A function of a list of tensors, as AOTAutograd takes what it may keep. It keeps the
    record alone: the function is kept here."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self._function, self._boxed_call = function, True

    def __call__(self, inputs: Sequence[Any]) -> Any:
        return self._function(inputs)

    def prepare_for_serialization(self) -> None:
        raise BypassAOTAutogradCache("the tuner keeps it itself")

    def post_compile(self, *given: Any) -> None:
        pass  # nothing is left to be done

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        pass


@contextmanager
def _recording() -> Iterator[None]:
    """AOTAutograd makes its record of what it traces. It computes no key, since that is ours, and
    stores nothing."""
    state = random.getstate()
    try:
        with (
            functorch_config.patch(
                enable_autograd_cache=True,
                enable_remote_autograd_cache=False,
                bundled_autograd_cache=True,
                strict_autograd_cache=False,
                bypass_autograd_cache_key=True,  # a random number in the place of a key
                autograd_cache_normalize_inputs=False,
            ),
            inductor_config.patch(fx_graph_cache=False),  # ends the computation of a key early
        ):
            yield
    finally:
        random.setstate(state)


def _guard_count() -> int:
    """How many conditions traces have set so far for their functions to be called."""
    context = torch._guards.TracingContext.try_get()
    if context is None:
        return 0
    shapes = context.fake_mode and context.fake_mode.shape_env
    return len(context.guards_context.aotautograd_guards) + len(shapes.guards if shapes else ())


class TraceFile:
    """A file with what is kept of the trace of one graph. It need not exist yet."""

    def __init__(self, path: Path, region_of: RegionOf) -> None:
        self._path, self._region_of = path, region_of
        self._trace: KeptTrace | None = None

    def load(self) -> tuple[Function, list[Function]] | None:
        """The function of the graph, and those of its regions; None where nothing is kept, or
        what is kept is damaged."""
        try:
            content = self._path.read_bytes()
            if sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
                return None
            with _disable_current_modes():
                record, trace = pickle.loads(content[_DIGEST:])
            mark_used(self._path)
            return self._loaded(record, trace)
        except Exception:  # the graph is traced, whatever PyTorch's code raises
            return None

    def _loaded(self, record: Any, trace: KeptTrace) -> tuple[Function, list[Function]]:
        regions = [
            self._region_of(region.graph, region.layouts, OfPyTorch(region.eager.function()))
            for region in trace.regions
        ]
        calls = [
            replacing(function, region.layouts.replaced)
            for function, region in zip(regions, trace.regions, strict=True)
        ]
        boxed = make_boxed_func(trace.code.function(calls))
        record.compiled_fw = BundledCompiledForward(_Compiled(boxed))
        wrapped = record.wrap_post_compile(
            [],
            record.sanitized_aot_config,
            {"cudagraphs": BoxedBool(False), "boxed_forward_device_index": None},
        )

        def function(*inputs: Any) -> Any:
            return wrapped([*inputs])

        return function, regions

    def note(
        self,
        traced: torch.fx.GraphModule,
        cut: Partition,
        graph: torch.fx.GraphModule,
        calls: Sequence[Function],
    ) -> None:
        """Notes the trace that `recorded` keeps then, as `kept_trace` takes it."""
        with suppress(NotKept):
            self._trace = kept_trace(traced, cut, graph, calls)

    def recorded(
        self, compile_traced: Function, through_autograd: Callable[[Any], Function]
    ) -> Function:
        """What `through_autograd` gives for a compiler of traced graphs in inference. The trace
        that is noted meanwhile is kept, unless it holds under conditions of its own."""

        def compiler(traced: torch.fx.GraphModule, inputs: Sequence[Any]) -> OutputCode:
            return _Compiled(compile_traced(traced, inputs))

        guards = _guard_count()
        with _recording():
            function = through_autograd(SerializableAOTDispatchCompiler(OutputCode, compiler))
        if self._trace is not None and _guard_count() == guards:
            with suppress(Exception):  # a full disk, or what has no form in a file
                self._keep(function, self._trace)
        return function

    def _keep(self, function: Any, trace: KeptTrace) -> None:
        record = copy.copy(function.serialize())
        if record.compiled_bw is not None or record.guards_expr:
            return
        record.compiled_fw = record.aot_forward_graph_str = None
        record.sanitized_aot_config = replace(
            record.sanitized_aot_config, aot_autograd_arg_pos_to_source=None
        )
        with _disable_current_modes():
            content = pickle.dumps((record, trace))
        put(self._path, sha256(content).digest() + content)


@dataclass(frozen=True, kw_only=True)
class TraceStore:
    """Kept traces in a folder, which need not exist yet."""

    folder: Path
    region_of: RegionOf

    def file(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> TraceFile | None:
        """The file of a graph of Dynamo's; None where no trace of it is kept."""
        if not should_use_local_autograd_cache():
            return None
        try:
            key = trace_key(module, inputs)
        except Exception:  # the graph is traced, whatever PyTorch's code raises
            return None
        return TraceFile(self.folder / f"{key}.trace", self.region_of)

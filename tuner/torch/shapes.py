"""Graphs with dynamic shapes: compiled anew for each shape that comes again, a few of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tuner.torch.forks import ProcessLock
from tuner.torch.notices import Notices
from tuner.torch.rebuilding import Function

MOST_SHAPES = 8  # of a graph; PyTorch compiles a function anew as often
_MOST_SEEN = 256  # shapes that are remembered after one call

Compile = Callable[[torch.fx.GraphModule, Sequence[Any]], Function]
"""Compiles a graph whose shapes are numbers for inputs like these."""

Shapes: TypeAlias = tuple[Any, ...]  # of each dynamic input: its shape and strides, or its value


def is_dynamic(inputs: Sequence[Any]) -> bool:
    """Whether a graph of these inputs has a function for each shape of theirs.

    Shapes must be all that varies: no functions are made for values of floats.
    """
    numbers = [value for value in inputs if not isinstance(value, torch.Tensor)]
    return any(map(_varies, inputs)) and all(
        isinstance(value, int | torch.SymInt) for value in numbers
    )


def _varies(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return isinstance(value, torch.SymInt)
    if value.layout != torch.strided:
        return False
    return any(isinstance(extent, torch.SymInt) for extent in (*value.shape, *value.stride()))


class ByShape:
    """The function of a graph with dynamic shapes. Several threads may call.

    Shapes that were there `calls` times get a function of their own, MOST_SHAPES of them.
    The others are PyTorch's, so that a number that grows from call to call compiles nothing.
    """

    def __init__(
        self,
        module: torch.fx.GraphModule,
        inputs: Sequence[Any],
        pytorch: Function,
        compile_static: Compile,
        notices: Notices,
        calls: int,
    ) -> None:
        self._module, self._pytorch, self._compile = module, pytorch, compile_static
        self._notices, self._calls = notices, calls
        self._varying = [place for place, value in enumerate(inputs) if _varies(value)]
        self._functions: dict[Shapes, Function] = {}
        self._seen: dict[Shapes, int] = {}
        self._lock = ProcessLock()

    def __call__(self, *inputs: Any) -> Any:
        shapes = tuple(_shape(inputs[place]) for place in self._varying)
        function = self._functions.get(shapes) or self._function_of(shapes, inputs)
        return function(*inputs)

    def _function_of(self, shapes: Shapes, inputs: Sequence[Any]) -> Function:
        with self._lock:
            if shapes in self._functions or len(self._functions) >= MOST_SHAPES:
                return self._functions.get(shapes, self._pytorch)
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            self._seen[shapes] = self._seen.get(shapes, 0) + 1
            if self._seen[shapes] < self._calls:
                return self._pytorch
            try:
                function = self._for(inputs)
            except Exception as error:  # the model goes on, whatever PyTorch's tracing raises
                function = self._pytorch
                self._notices.warn("shape", f"a graph with these shapes has no regions: {error}")
            self._functions[shapes] = function
            return function

    def _for(self, inputs: Sequence[Any]) -> Function:
        """The function for inputs of these shapes. Numbers among them are constants of it."""
        graph = torch.fx.Graph()
        values: dict[Any, Any] = {}
        tensors = [place for place, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        given = iter(inputs)
        for node in self._module.graph.nodes:
            number = next(given) if node.op == "placeholder" else None
            if isinstance(number, int):
                values[node] = number
            else:
                values[node] = graph.node_copy(node, lambda node: values[node])
        mode = FakeTensorMode()
        function = self._compile(
            torch.fx.GraphModule(self._module, graph),
            [mode.from_tensor(inputs[place]) for place in tensors],
        )
        return lambda *inputs: function(*[inputs[place] for place in tensors])


def _shape(value: Any) -> Any:
    return (value.shape, value.stride()) if isinstance(value, torch.Tensor) else value

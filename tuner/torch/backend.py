"""The backend `tuner` of `torch.compile`, by its name. Who makes the name known need not compile
anything, so what compiles is loaded with the first graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from tuner.torch.graph_compiler import GraphCompiler


class Backend:
    """A backend, as PyTorch calls it for each graph."""

    __name__ = "tuner"

    def __reduce__(self) -> str:
        """By its name, so that a compiled model can be copied and pickled: copies share it."""
        return self.__name__

    def __call__(
        self,
        module: torch.fx.GraphModule,
        inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Callable[..., Any]:
        """The function of a graph of Dynamo's: regions of it are ours, PyTorch computes the
        rest. Raises UsageError for options that it does not have."""
        return self._compiler.function(module, inputs, mode, options)

    @cached_property
    def _compiler(self) -> GraphCompiler:
        from tuner.torch.graph_compiler import GraphCompiler  # noqa: PLC0415  # with a graph

        return GraphCompiler()


tuner = Backend()

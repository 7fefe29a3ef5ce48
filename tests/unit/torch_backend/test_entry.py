"""What a call of a compiled graph passes through before its regions."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.torch_regions import compile_traced  # noqa: E402
from tuner.torch.rebuilding import Function, OfPyTorch  # noqa: E402

X = torch.ones(3)


class Region:
    """A region's call, which PyTorch computes."""

    __name__ = "region"

    def __init__(self, eager: Function, *, is_pytorch: bool) -> None:
        self.eager, self.is_pytorch = eager, is_pytorch

    def __call__(self, *tensors: Any) -> Any:
        return self.eager(*tensors)


def functions_of_a_call(compiled: Callable[..., Any]) -> Counter[str]:
    """The functions of Python that a call runs, by module and name, once all is compiled."""
    with torch.no_grad():
        for _ in range(3):
            compiled(X)
        calls = Counter[str]()

        def note(frame: FrameType, event: str, _: Any) -> None:
            if event == "call":
                calls[f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"] += 1

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            compiled(X)
        finally:
            sys.setprofile(before)
    return calls


def beyond_dynamo(*, is_pytorch: bool) -> Counter[str]:
    """What a compiled graph of one region runs, without what Dynamo runs for any backend."""

    def of_region(_: Any, eager: OfPyTorch) -> Function:
        return Region(eager, is_pytorch=is_pytorch)

    def function(x: Any) -> Any:
        return x * 2

    torch._dynamo.reset()
    bare = functions_of_a_call(torch.compile(function, backend=lambda module, _: lambda x: (x,)))
    compiled, backend = compile_traced(function, of_region)
    calls = functions_of_a_call(compiled) - bare
    assert len(backend.regions) == 1
    return calls


def test_a_graph_of_pytorchs_is_called_at_once() -> None:
    """As Dynamo's code, not by what compiles that code with its first call."""
    calls = beyond_dynamo(is_pytorch=True)
    assert sorted(name.rpartition(".")[2] for name in calls) == ["forward", "function"]


def test_a_graph_with_a_region_keeps_dynamo_off_only_once() -> None:
    calls = beyond_dynamo(is_pytorch=False)
    assert calls[f"{__name__}.{Region.__qualname__}.__call__"] == 1
    assert not [name for name in calls if name.startswith("torch._dynamo")]

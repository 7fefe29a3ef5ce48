"""`tuner.torch.einsum`: PyTorch's answers, by a library once there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.torch_libraries import region_library  # noqa: E402
from tuner.errors import UsageError  # noqa: E402
from tuner.models.library.region_cache import RegionCache  # noqa: E402
from tuner.torch.einsum import Einsum  # noqa: E402
from tuner.torch.native import native  # noqa: E402
from tuner.torch.options import options_from  # noqa: E402
from tuner.torch.packed_graph import PackedGraph  # noqa: E402
from tuner.torch.products import _graph, _layouts, _operand  # noqa: E402
from tuner.torch.tuning import key_of  # noqa: E402
from tuner.workload.einsum import contraction_of, product_of  # noqa: E402

OFF = "tune-off"


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path))


def test_without_a_library_it_is_pytorchs() -> None:
    einsum = Einsum()
    a, b, c = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)
    for subscripts, tensors in (
        ("ij,jk", [a, b]), ("ij,jk,kl->li", [a, b.T, a.flip(0)]), ("ii", [a]), ("ij,ij->", [a, b]),
        ("ij,j->i", [c.expand(6, 4), c]), ("ij,jk", [a[:, ::2], b[:2]]), ("ij,j", [a[:0], c]),
        ("ij,jk", [a.to(torch.complex64), b.to(torch.complex64).conj()]),
        ("ij,jk", [a.bfloat16(), b.bfloat16()]), ("...ij,jk", [a.expand(2, 4, 4), b]),
    ):  # fmt: skip
        right = torch.einsum(subscripts, *tensors)
        for _ in range(2):
            torch.testing.assert_close(einsum(subscripts, *tensors, mode=OFF), right)


def test_gradients_are_pytorchs() -> None:
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5)
    Einsum()("ij,jk->ik", a, b, mode=OFF).sum().backward()
    torch.testing.assert_close(a.grad, b.sum(1).expand(3, 4))


def test_traced_calls_are_pytorchs() -> None:
    einsum = Einsum()
    compiled = torch.compile(
        lambda a, b: einsum("ij,jk->ik", a, b, mode=OFF) + 1, backend="eager", fullgraph=True
    )
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    torch.testing.assert_close(compiled(a, b), a @ b + 1)


def test_bad_calls_are_refused() -> None:
    a = torch.randn(3, 4)
    with pytest.raises(UsageError, match="has 2 operands, and 1 are given"):
        Einsum()("ij,jk", a)
    with pytest.raises(UsageError, match="is no option of the backend tuner"):
        Einsum()("ij->ji", a, options={"speed": 3})


def unused(message: str) -> Any:
    raise AssertionError(message)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [False, True])
def test_a_library_takes_tensors_as_they_lie(spread: bool) -> None:
    """Transposed and expanded operands, aligned or not."""
    a = torch.randn(6).expand(5, 6) if spread else torch.randn(6, 5).T
    b, shifted = torch.randn(7, 6).T, torch.randn(43)[1:].reshape(7, 6).T
    options, operands = options_from("tune-off", None), [_operand(a), _operand(b)]
    contraction = contraction_of(product_of("ij,jk->ik", [a.shape, b.shape]), operands)
    assert contraction is not None
    graph = PackedGraph.of(_graph(contraction))
    cache = RegionCache(folder=options.settings.data_dir / "torch")
    path = cache.keep(key_of(graph, options.settings), region_library(_graph(contraction)))
    call = native(path, graph, _layouts(contraction, operands), unused)
    torch.testing.assert_close(call(a, b)[0], a @ b)
    einsum = Einsum()
    for second in (b, b, b, shifted):  # the library is tried at the second call
        assert (second is b) == (second.data_ptr() % 64 == 0)
        torch.testing.assert_close(einsum("ij,jk->ik", a, second, mode=OFF), a @ second)
    race = cache.race(key_of(graph, options.settings))
    assert race is not None and race.library_s > 0

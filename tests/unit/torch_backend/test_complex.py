"""Complex tensors in regions: what is computed of their parts is what PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.torch_libraries import by_library  # noqa: E402
from tests.support.torch_regions import (  # noqa: E402
    compile_evaluated,
    compile_traced,
    evaluate_traced,
)
from tuner.models.errors import ModelRefused  # noqa: E402
from tuner.models.exported_program import read_exported  # noqa: E402
from tuner.models.reference.evaluation import evaluate_graph  # noqa: E402

fft = torch.fft

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # of PyTorch to itself
]


def numbers(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.manual_seed(sum(shape)), dtype=torch.complex64)


X, Y = numbers(3, 4, 6), numbers(3, 4, 6) * 3
R = torch.randn(3, 4, 6, generator=torch.manual_seed(1))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, r: x * y,
        lambda x, y, r: x / y,
        lambda x, y, r: x * r + 2j,
        lambda x, y, r: (x - y) * 0.5,
        lambda x, y, r: r.to(torch.complex64) - x,
        lambda x, y, r: x.abs() + y.angle(),
        lambda x, y, r: x.exp(),
        lambda x, y, r: torch.polar(r.abs(), r),
        lambda x, y, r: torch.complex(r, -r) * x,
        lambda x, y, r: torch.complex(r[:, :1], r[0, 0]) + torch.polar(r[:1].abs(), r[0, :, :1]),
        lambda x, y, r: x.conj() * y,
        lambda x, y, r: (x * 2).conj(),
        lambda x, y, r: (x * y).real + (x * y).imag,
        lambda x, y, r: torch.view_as_real(x * y).flatten(2),
        lambda x, y, r: torch.view_as_complex(r.reshape(3, 4, 3, 2)) * x[..., :3],
        lambda x, y, r: torch.cat([x, y], -1).permute(2, 0, 1).sum(0).mean(-1),
        lambda x, y, r: torch.where(r > 0, x, y),
        lambda x, y, r: x @ y.transpose(1, 2),
        lambda x, y, r: x[0] @ y[1].T,
        lambda x, y, r: (x * y).transpose(0, 2) + 1,
        lambda x, y, r: x.split([2, 4], -1)[1] * 2,
        lambda x, y, r: fft.fft2(r, dim=(1, 2)).real,
        lambda x, y, r: fft.ifft(x, norm="ortho") + fft.fft(x, dim=0, norm="forward"),
        lambda x, y, r: fft.rfft(r, n=8, norm="ortho"),
        lambda x, y, r: fft.irfft(fft.rfft(r) * fft.rfft(r.flip(-1))),
        lambda x, y, r: fft.irfft(x, n=7),
        lambda x, y, r: fft.rfft2(r, dim=(0, 1)),
        lambda x, y, r: fft.irfftn(fft.rfftn(r, norm="ortho"), s=(3, 4, 6), norm="ortho"),
        lambda x, y, r: torch.addmm(y[0, :, :4], x[0], y[1].T) + torch.zeros_like(x[0, :, :4]),
        lambda x, y, r: torch.slice_scatter(y * 2, x[:, :, :2], 2, 1, 5, 2) + x.diagonal()[0, 0],
        lambda x, y, r: torch.select_scatter(x, y[0] + 1, 0, 1).tril(),
        lambda x, y, r: x**3 + x.log() + (y**-0.5) * x.sqrt() + x.reciprocal(),
        lambda x, y, r: x.index_put((torch.tensor([2, 0]),), y[:2]).unfold(2, 3, 2) * 1j,
        lambda x, y, r: (x.to(torch.complex128) * r.double()).to(torch.complex64),
    ],
)  # fmt: skip
def test_a_region_computes_what_pytorch_does(function: Callable[..., Any]) -> None:
    compiled, backend = compile_evaluated(function)
    right = function(X, Y, R)
    torch.testing.assert_close(compiled(X, Y, R), right, rtol=1e-4, atol=1e-5, check_stride=True)
    assert len(backend.regions) == 1 and backend.left == []


def test_inputs_in_any_order_of_memory() -> None:
    turned = numbers(6, 3, 4).permute(1, 2, 0)
    torch.testing.assert_close(evaluate_traced(lambda x: x * 2, turned), turned * 2)


def test_magnitudes_and_quotients_do_not_overflow() -> None:
    x = torch.tensor([3e30 + 4e30j, 3e-30 - 4e-30j, 0j, complex("inf"), 1 + 2j])
    y = torch.tensor([1e30 + 1e30j, 1e-30 + 1e-30j, 1j, 1, 2e30])
    got = evaluate_traced(lambda x, y: (x.abs(), x[:3] / y[:3]), x, y)
    torch.testing.assert_close(got, (x.abs(), x[:3] / y[:3]))


def test_a_tensor_whose_memory_holds_conjugates_stays_with_pytorch() -> None:
    compiled, backend = compile_evaluated(lambda x: x[1:] * 2 + 1)
    torch.testing.assert_close(compiled(X.conj()), X.conj()[1:] * 2 + 1)
    assert any("no plain tensor" in left.reason for left in backend.left)


@pytest.mark.parametrize(
    ("function", "x", "following"),
    [
        (lambda x: x * x, X, lambda y: torch.view_as_real(y.conj().resolve_conj())),
        # Of a number with no dimensions a part lies as any other number.
        (lambda x: x.sin(), R[0, 0, 0], lambda y: torch.complex(R[0, 0, 1], y).conj().abs()),
    ],
)
def test_gradients_that_are_lazily_conjugated_or_negated(
    function: Callable[..., Any], x: Any, following: Callable[..., Any]
) -> None:
    compiled, backend = compile_evaluated(function)
    gradients, bits = list[Any](), list[bool]()
    for call in (compiled, function):
        own = x.clone().requires_grad_()
        result = call(own)
        result.register_hook(lambda flowing: bits.append(flowing.is_conj() or flowing.is_neg()))
        following(result).square().sum().backward()
        gradients.append(own.grad)
    assert bits == [True, True] and len(backend.regions) == 2
    torch.testing.assert_close(*gradients)


@pytest.mark.slow
def test_libraries_take_and_give_complex_numbers() -> None:
    """By both parts of a number, in any order of dimensions, and from any address."""

    def function(x: Any, y: Any) -> Any:
        return x * y + 1j, (x * y).abs()

    compiled, _ = compile_traced(function, by_library)
    shifted = torch.cat([Y.flatten()[:1], Y.flatten()])[1:].reshape(Y.shape)
    assert shifted.data_ptr() % 64
    for y in (Y, shifted, Y.permute(2, 0, 1).contiguous().permute(1, 2, 0)):
        for got, right in zip(compiled(X, y), function(X, y), strict=True):
            torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5)


class Mixer(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be missing
    """As in FNet, and a rotary position by complex numbers, as in Llama 4."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(4, 3), torch.randn(4, 3)))

    def forward(self, x: Any) -> Any:
        mixed = fft.fftn(x, dim=(1, 2)).real
        pairs = torch.view_as_complex(mixed.reshape(3, 4, 3, 2).contiguous())
        return torch.view_as_real(pairs * self.turns).flatten(2)


class Spectral(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Low frequencies mixed, as in Fourier neural operators, and a linear layer of complex ones."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(numbers(4, 4, 2))
        self.layer = torch.nn.Linear(2, 3, dtype=torch.complex64)

    def forward(self, x: Any) -> Any:
        frequencies = fft.rfft(x)
        mixed = torch.zeros(3, 4, 4, dtype=torch.complex64)
        mixed[:, :, :2] = torch.einsum("bix,iox->box", frequencies[:, :, :2], self.weight)
        mixed[:, :, 1:] = mixed[:, :, 1:] + self.layer(frequencies[:, :, 2:])
        return fft.irfft(mixed, n=6)


@pytest.mark.parametrize("network", [Mixer, Spectral])
def test_exported_programs_compute_with_complex_numbers(network: Callable[[], Any]) -> None:
    model = network()
    graph = read_exported(torch.export.export(model, (R,)))
    (name,) = graph.outputs
    got = torch.from_numpy(evaluate_graph(graph, [R.numpy()])[name])
    torch.testing.assert_close(got, model(R), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("function", "x"), [(lambda x: x.abs(), X), (lambda x: torch.complex(x, x), R)]
)
def test_a_program_gives_and_takes_real_numbers(function: Callable[..., Any], x: Any) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be missing
        def forward(self, x: Any) -> Any:
            return function(x)

    with pytest.raises(ModelRefused, match=r"is complex; .* torch\.view_as_real"):
        read_exported(torch.export.export(Model(), (x,)))

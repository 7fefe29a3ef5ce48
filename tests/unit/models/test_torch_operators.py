"""Operators of PyTorch beyond core ATen: read as graphs that compute the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.graph_values import graph_outputs
from tests.support.torch_libraries import library_outputs
from tests.support.torch_programs import assert_reads_as, exported
from tuner.models.exported_program import read_exported
from tuner.models.nodes import Branch

torch = pytest.importorskip("torch")
nn = torch.nn.functional
Tensor = Any

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # of PyTorch to itself
    pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter:UserWarning"),
    pytest.mark.filterwarnings("ignore:index_reduce:UserWarning"),
]

torch.manual_seed(0)
ROWS = torch.randn(3, 5, 8)
ODD = ROWS.clone()
ODD[0, 1, 3], ODD[1, 2, 0], ODD[2, 0, 1], ODD[2, 4, 4] = torch.nan, torch.inf, -torch.inf, -0.0
NUMBERS = torch.tensor([[3, -1, 4, 1, -5], [9, 2, -6, 5, 3]])
SPECIAL = torch.tensor(
    [-9.5, -4.2, -3.3, -1.0, -0.7, -0.1, -1e-3, 1e-3, 0.1, 0.3, 0.5, 0.9, 1.0, 1.5, 2.0, 5.0, 30.0]
)


def extremes(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
    return (
        x.max(), x.min(), i.max(), i.min(), (x > 0).max(), (x > 9).max(), x[0, 1].min(),
        *x.cummax(1), *x.cummin(2), *i.cummax(1), *i.cummin(0), x.repeat(1, 1, 40).cummax(2)[0],
        torch.logcumsumexp(x, 1), torch.logcumsumexp(x[2] * 300, 1),
    )  # fmt: skip


def places_of_sums(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
    """Positions of extremes of numbers that nobody stores."""
    y = x * 1.7 + x.flip(1) / 3
    _, pooled = nn.max_pool2d(y, 2, return_indices=True)
    _, adapted = nn.adaptive_max_pool2d(y, 2, return_indices=True)
    return (
        y.argmax(1), y.max(2)[1], (y + x[0]).argmin(), y.cummax(1)[1], pooled, adapted,
        y.where(x > 9, -torch.inf).argmax(1), nn.rrelu(x),
    )  # fmt: skip


def orders(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
    return (
        *x.sort(dim=1, stable=True, descending=True), i.argsort(dim=1, stable=True),
        *x.kthvalue(2, 1), *x.kthvalue(8, keepdim=True), x.median(), i.median(),
        *x.median(1), *x.median(2, keepdim=True), i.median(0)[0],
    )  # fmt: skip


def along_nothing(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
    """Operators along a dimension of tensors that have none."""
    zero = i * 0
    return (
        *x.sort(), *x.sort(dim=-1, descending=True, stable=True), x.argsort(), *x.topk(1),
        *x.topk(0), *x.kthvalue(1), *x.median(0), *x.max(0), *i.min(-1, keepdim=True),
        x.argmax(), i.argmin(0), x.cumsum(0), i.cumprod(-1), *x.cummax(0), x.logcumsumexp(0),
        x.softmax(0), x.log_softmax(-1), x.flip(0), x.gather(0, zero),
        x.index_select(0, zero.reshape(1)), x.scatter(0, zero, 3.0), x.scatter_add(0, zero, x),
    )  # fmt: skip


def scalars(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.erfc(x), torch.erfinv(x / 10), torch.erfinv(x.sign()), torch.exp2(x), x.signbit(),
        torch.hypot(x, y), torch.hypot(x * 1e30, y * 1e30), torch.copysign(y, x), x.angle(),
        torch.copysign(y, -2.0), torch.ldexp(x, torch.tensor(-3)), torch.fmax(x, y),
        torch.fmin(x, y), x.round(decimals=1), (x * 100).round(decimals=-1),
        torch.remainder(3.5, y.nan_to_num(1, 1, 1).abs() + 1), torch.special.ndtr(x),
    )  # fmt: skip


def gammas(x: Tensor) -> tuple[Tensor, ...]:
    return torch.lgamma(x), torch.lgamma(x * 100 + 0.5), torch.digamma(x.where(x != -1, x + 0.5))


def writes(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
    square, cube = x[0, :3, :3].clone(), x[:, :3, :3].clone()
    square.fill_diagonal_(7.0)
    cube.diagonal(1, 1, 2).copy_(x[:, 0, :2])
    rows = x.clone()
    rows[torch.tensor([True, False, True])] = x[:2] * 3
    columns = x.clone()
    columns[:, torch.tensor([True, False, True, False, False])] = x[0, 0]
    put = x.index_put((x[..., 0] > 0,), torch.ones(8), accumulate=True)
    at = i.abs() % 5
    added = x[0, :2].scatter(1, at, ROWS[0, :2, :5], reduce="add")
    multiplied = x[0, :2].scatter(1, at, 3.0, reduce="multiply")
    reduced = [
        x.index_reduce(1, at[0], x, how, include_self=how == "amax")
        for how in ("prod", "mean", "amax", "amin")
    ]
    return (
        square,
        cube,
        rows,
        columns,
        put,
        added,
        multiplied,
        *reduced,
        x.as_strided_scatter(x[0, 0, :4], (4,), (9,), 2),
    )


def distances(x: Tensor) -> tuple[Tensor, ...]:
    same = x.round()
    return (
        *(nn.pdist(x[0], p) for p in (0.0, 1.0, 2.0, 3.0, torch.inf)), torch.cdist(same, same, 0.0),
        torch.dist(x, x * 2), torch.dist(x[0], x[1], 3.0), torch.addmv(x[0, :, 0], x[1], x[2, 0]),
    )  # fmt: skip


def windows(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
    table, bags = x[0], (i.abs() % 5)
    return (
        *(nn.embedding_bag(bags, table, mode=mode) for mode in ("sum", "mean", "max")),
        *(nn.embedding_bag(bags, table, mode=m, padding_idx=3) for m in ("sum", "mean", "max")),
        nn.embedding_bag(bags[0], table, torch.tensor([0, 2, 2]), mode="max", padding_idx=1),
        nn.avg_pool2d(x, 3, 2, 1, divisor_override=5), nn.avg_pool2d(x, 2, divisor_override=3),
    )  # fmt: skip


def roundings(x: Tensor) -> tuple[Tensor, ...]:
    scales, zeros = torch.tensor([0.5, 0.1, 0.07]), torch.tensor([0, 3, -7], dtype=torch.int32)
    one = torch.tensor([0.13]), torch.tensor([4], dtype=torch.int32)
    return (
        torch.fake_quantize_per_tensor_affine(x, 0.03, 5, -20, 20),
        torch.fake_quantize_per_tensor_affine(x, *one, 0, 255),
        torch.fake_quantize_per_channel_affine(x, scales, zeros, 0, -8, 7),
    )


def products(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
    bytes_of = (x[0] * 50).to(torch.int8), (x[1, :, :8] * 50).to(torch.int8)
    return (
        nn.bilinear(x[0], x[1], torch.full((4, 8, 8), 0.1), x[0, 0, :4]),
        nn.bilinear(x[:, :, :3], x, torch.arange(48.0).reshape(2, 3, 8)),
        torch._int_mm(bytes_of[0].repeat(4, 1), bytes_of[1].t().repeat(1, 8)),
        x.view(torch.int32), (i + 7).view(torch.float64).view(torch.int64), 5 & i, 5 | i, 5 ^ i,
        torch.repeat_interleave(x, torch.tensor([2, 0, 3]), 0),
        torch.repeat_interleave(x[0], i[0].abs(), 0, output_size=14),
    )  # fmt: skip


def wrapping(i: Tensor) -> tuple[Tensor, ...]:
    """The lowest four bits with their sign, and a generator of random numbers."""
    j = i.to(torch.int32)
    return (j << 28) >> 28, (j * 1103515245 + 12345) >> 16, (i * 0x5851F42D4C957F2D) >> 33


def linear_algebra(x: Tensor) -> tuple[Tensor, ...]:
    linalg, eye = torch.linalg, torch.eye(4)
    square, side = x[..., :4, :4], x[..., :4, 4:]
    definite = square @ square.mT + eye
    return (
        linalg.det(square), *linalg.slogdet(square), linalg.inv(square), definite.inverse(),
        linalg.solve(square, side), linalg.solve(square[0], side[0, :, 0]),
        linalg.solve(square, side[..., 0]), linalg.solve(square, side.mT, left=False),
        linalg.cholesky(definite), linalg.cholesky(definite[0], upper=True),
        linalg.solve_triangular(definite, side, upper=False),
        linalg.solve_triangular(square, side, upper=True, unitriangular=True),
        linalg.solve_triangular(definite, side.mT, upper=False, left=False),
    )  # fmt: skip


CASES = [
    (extremes, (ROWS, NUMBERS)),
    (extremes, (ODD, NUMBERS)),
    (places_of_sums, (ROWS, NUMBERS)),
    (orders, (ROWS, NUMBERS)),
    (scalars, (SPECIAL, SPECIAL.flip(0))),
    (along_nothing, (ROWS[0, 0, 0], NUMBERS[0, 0])),
    (scalars, (ODD[2], ODD[0])),
    (gammas, (SPECIAL,)),
    (writes, (ROWS, NUMBERS)),
    (distances, (ROWS,)),
    (windows, (ROWS, NUMBERS)),
    (products, (ROWS, NUMBERS)),
    (roundings, (ROWS,)),
    (wrapping, (torch.arange(-9, 31),)),
]


@pytest.mark.parametrize(("function", "inputs"), CASES)
def test_operators_mean_what_they_mean_to_pytorch(
    function: Callable[..., Any], inputs: tuple[Tensor, ...]
) -> None:
    assert_reads_as(function, *inputs)


@pytest.mark.slow
@pytest.mark.parametrize(("function", "inputs"), [*CASES, (linear_algebra, (ROWS,))])
def test_libraries_compute_what_pytorch_does(
    tmp_path: Path, function: Callable[..., Any], inputs: tuple[Tensor, ...]
) -> None:
    graph = read_exported(exported(function, *inputs))
    got = library_outputs(graph, [tensor.numpy() for tensor in inputs], tmp_path)
    for number, (array, right) in enumerate(zip(got, function(*inputs), strict=True)):
        np.testing.assert_allclose(array, right.numpy(), 1e-3, 1e-3, err_msg=str(number))


def test_a_median_with_nan_is_nan() -> None:
    assert_reads_as(lambda x: (*x.median(1), x.median(), x.median(2)[0]), ODD)


def test_matrices_are_factored_as_pytorch_does() -> None:
    assert_reads_as(linear_algebra, ROWS, rtol=1e-3, atol=1e-3)


class Flow(torch.nn.Module):  # type: ignore[misc, name-defined]
    """An invertible mixture of channels, whose weights alone are decomposed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        sign, logarithm = torch.linalg.slogdet(self.weight)
        values, places = self.weight.topk(2)
        inverse = torch.linalg.inv(self.weight)
        return (
            x @ inverse + sign * logarithm,
            x[:, places[0]] * values[1],
            self.weight.max(1)[0] + x,
        )


def test_what_depends_on_weights_alone_is_computed_ahead() -> None:
    graph = read_exported(exported(Flow(), torch.randn(3, 4)))
    assert sum(len(node.stages) for node in graph.expressions) <= 6
    assert_reads_as(Flow(), torch.randn(3, 4))


class Contexts(torch.nn.Module):  # type: ignore[misc, name-defined]
    """What Hugging Face's rotary positions stand in, with a number and None among the results."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Any, ...]:
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            angles = (self.layer(x).float() * 2).cos()
        return self.layer(x) * angles, x.shape[0], None


def test_contexts_and_results_that_are_no_tensors_are_left_out() -> None:
    net, x = Contexts(), torch.randn(2, 4)
    (got,) = graph_outputs(read_exported(exported(net, x)), [x.numpy()])
    torch.testing.assert_close(torch.from_numpy(got), net(x)[0].detach())


class Conditional(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.then, self.other = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        def other(t: Tensor) -> Tensor:
            return torch.cond(t.max() > 3, lambda u: self.other(u).tanh(), self.other, (t,))

        return torch.cond(x.sum() > 0, lambda t: self.then(t).relu(), other, (x,)) * 2


def test_one_side_of_a_conditional_is_computed() -> None:
    net, x = Conditional(), torch.ones(2, 4)
    graph = read_exported(exported(net, x))
    assert any(isinstance(node, Branch) for node in graph.nodes)
    for given in (x, -x, torch.tensor([[4.0, -9, 0, 0], [0, 1, 2, 3]])):
        (got,) = graph_outputs(graph, [given.numpy()])
        torch.testing.assert_close(torch.from_numpy(got), net(given).detach())

"""Programs of torch.export: read as graphs that compute the same; what is no such
program is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tuner
from tests.support.graph_values import graph_outputs
from tests.support.torch_programs import assert_reads_as
from tuner.errors import UsageError
from tuner.models.errors import ModelRefused
from tuner.models.exported_program import is_exported_program, read_exported
from tuner.models.nodes import Scan
from tuner.models.reference.evaluation import evaluate_graph


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"builtins\.int is no model; give the path"):
        tuner.tune_model(3, tmp_path / "out")
    assert not is_exported_program(SimpleNamespace()) and not (tmp_path / "out").exists()


def test_a_program_that_writes_its_state_is_refused() -> None:
    signature = SimpleNamespace(buffers_to_mutate={"running_mean": "m"}, user_inputs_to_mutate={})
    with pytest.raises(ModelRefused, match=r"model\.eval"):
        read_exported(SimpleNamespace(graph_signature=signature))


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # of PyTorch to itself
def test_a_graph_computes_what_the_program_does() -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 16),
        nn.GELU(),
        nn.LayerNorm(16),
        nn.Linear(16, 5),
        nn.Softmax(dim=-1),
    ).eval()
    x = torch.randn(2, 3, 16, 16)
    program = torch.export.export(net, (x,))
    assert is_exported_program(program)
    graph = read_exported(program)
    assert len(graph.labels) == 2 and graph.labels[1] == "out0"
    (output,) = graph_outputs(graph, [x.numpy()])
    np.testing.assert_allclose(output, net(x).detach().numpy(), rtol=1e-4, atol=1e-6)


def operators() -> dict[str, tuple[Any, ...]]:
    """Functions of tensors and their inputs, by name."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    image, rows = torch.randn(2, 4, 9, 10), torch.randn(3, 5, 8)
    indices = torch.tensor([[0, 4, -1], [2, 2, 1]])
    nn = torch.nn.functional
    return {
        "products with weights of a byte": (
            lambda x: torch.ops.aten._weight_int8pack_mm(
                x, (image[0].reshape(-1, 9) * 40).to(torch.int8), image[1, 0, 0, :10].repeat(4)
            ),
            torch.randn(3, 9),
        ),
        "convolutions": (
            lambda x: nn.conv_transpose2d(
                nn.conv2d(x, image[:, :2, :3, :3], stride=2, padding=1, groups=2),
                image[:, :, :2, :2],
            ),
            image,
        ),
        "pooling": (
            lambda x: (
                nn.max_pool2d(x, 3, 2, 1), nn.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
                *nn.max_pool2d(x, 2, return_indices=True), nn.adaptive_avg_pool2d(x, (4, 3)),
                nn.adaptive_avg_pool3d(x, (2, 3, 5)), nn.adaptive_avg_pool1d(x[0], 4),
                *nn.adaptive_max_pool2d(x, (4, 3), return_indices=True),
                nn.adaptive_max_pool3d(x, (3, 2, 7)), nn.adaptive_max_pool1d(x[0], 7),
            ),
            image,
        ),
        "resampling": (
            lambda x: (
                nn.interpolate(x, scale_factor=2, mode="nearest"),
                nn.interpolate(x, size=(17, 5), mode="bilinear", align_corners=False),
                nn.interpolate(x, size=(12, 20), mode="bicubic", align_corners=True),
            ),
            image,
        ),
        "norms": (
            lambda x: (nn.group_norm(x, 2), nn.layer_norm(x, (10,)), x.softmax(1), x.var(2)), image,
        ),
        "movement": (
            lambda x: (
                torch.roll(x, (1, -2), (0, 2)), x.flip(1)[:, 1:, ::2], x.repeat(1, 2, 1),
                torch.cat([x, x * 2], 1).transpose(0, 2).reshape(8, -1), nn.pad(x, (1, 2, 0, 3)),
            ),
            rows,
        ),
        "indices": (
            lambda x, i: (
                x[:, i], nn.embedding(i.clamp(min=0), x[0]),
                x.gather(1, i.clamp(min=0)[None, :, :]), x[i.clamp(0, 2), i],
                torch.tril(x), x.cumsum(1),
            ),
            rows,
            indices,
        ),
        "reductions": (
            lambda x: (
                x.sum((0, 2)), x.mean(), x.amax(1), x.argmin(2), *x.max(1), *x.topk(3),
                (x > 0).any(1), (x > 0).sum(1), (x > 0).prod(1), (x > 0).amax(1), (x > 0).amin(0),
                (x > 0).cumsum(1), torch.sum(x > 0, dtype=torch.float32),
                torch.linalg.vector_norm(x, dim=1), x.sort(1).values,
            ),
            rows,
        ),
        "arithmetic": (
            lambda x, i: (
                x % 0.7, i % 3, torch.div(i, 2, rounding_mode="trunc"), i // 2, i / 2,
                x.clamp(-1, 1),
                torch.where(x > 0, x, x.exp()), (x == x) & (i[0, 0] == 0), x.floor(), x.round(),
                x.sin(), nn.gelu(x, approximate="tanh"), nn.silu(x), x**3, 2**x, 1 - i,
                x - x.to(torch.bfloat16).float(), x - x.half().float(),
            ),
            rows,
            indices,
        ),
        "filtered resampling": (
            lambda x: (
                nn.interpolate(x, size=(4, 7), mode="bilinear", antialias=True),
                nn.interpolate(x, size=(5, 17), mode="bicubic", antialias=True),
                nn.interpolate(x, scale_factor=0.4, mode="bilinear", antialias=True),
                nn.interpolate(x, size=(5, 17), mode="nearest-exact"),
            ),
            image,
        ),
        "shifts": (
            lambda x, i: (
                x << 3, x >> 2, 5 << i, x << i, x >> i, x.to(torch.uint8) >> 3,
                x.to(torch.int8) << i.to(torch.int8), x.to(torch.uint8) >> i.to(torch.uint8),
                torch.bitwise_right_shift(x.to(torch.int32), 40),
            ),
            torch.tensor([[100, -100, 7], [-1, 2**40, -(2**63)]]),
            torch.tensor([0, 5, 70]),
        ),
        "places in order": (
            lambda x, at: (
                torch.bucketize(x, at), torch.bucketize(x, at, right=True, out_int32=True),
                torch.searchsorted(x[:, 0].sort(1).values, x[:, 1].contiguous(), side="right"),
                torch.searchsorted(at, x[0]), torch.bucketize(0.5, at) + at.long(),
            ),
            torch.cat([rows, torch.tensor([-1, 0, 0.5, 2, 9, torch.nan, torch.inf, -torch.inf])
                .expand(3, 1, 8)], 1),
            torch.tensor([-1.0, 0, 0, 0.5, 2]),
        ),
        "experts": (
            mixed, torch.randint(-4, 5, (9, 8)).float(), torch.tensor([3, 0, 0, 2, 3, 3, 5, 0, 2]),
        ),
        "numbers": (
            lambda x, i: (
                torch.log1p(x.abs() * 1e-5), torch.expm1(x * 1e-5), torch.expm1(x),
                torch.log2(x.abs()),
                torch.log10(x.abs()), torch.atan2(x, x.flip(2)), x.prod(), (x > -9).all(),
                torch._is_all_true(x > 0), torch._is_any_true(x > 0),
                i & 2, i | 4, i ^ 3, ~i, (x > 0) & (x < 1), (x > 0) ^ (x < 1),
            ),
            rows,
            indices,
        ),
        "angles": (
            lambda x, y: (torch.atan2(x, y), 1 / torch.atan2(x, y)),  # the sign of zeros too
            torch.tensor([0.0, -0.0, 0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, 2.0, torch.nan]),
            torch.tensor([1.0, 1.0, -1.0, -0.0, 0.0, -0.0, -torch.inf, torch.inf, -torch.inf, 1.0]),
        ),
        "writes": (
            lambda x, i: (
                torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 5, 2),
                torch.select_scatter(x, x[0], 0, -1),
                written(x, (i.clamp(0, 2), slice(None), i.abs()), x[0, :, :1].T * 3),
                written(x, (slice(1, 3), i.abs()), 5.0), written(x, (x > 1,), 9.0),
                x.index_put((i.clamp(0, 2),), x[0], accumulate=True),
                torch.where(x > 0, 7.0, x), x.masked_fill(x > 0, 3.0),
                x.masked_scatter(x > 0, x.flip(2) * 2), x[0].masked_scatter(x > 0, x + 1),
                x.masked_scatter(x[:, :, :1] > 0, x * 2), x.masked_scatter(x[0, :, 2:3] > 0, -x),
                *(
                    x.scatter_reduce(1, i.abs()[None].expand(2, 2, 3), x * 2, how, include_self=own)
                    for how in ("sum", "prod", "amax", "amin", "mean")
                    for own in (True, False)
                ),
            ),
            rows,
            indices,
        ),
        "places": (
            lambda x: (
                x.as_strided((2, 3), (5, 2), 4), x.diagonal(1, 1, 2), x.diagonal(-2),
                torch.cdist(x, x + 1), torch.cdist(x, x * 2, p=1.0), nn.embedding_bag(
                    torch.tensor([4, 0, 1, 2, 2, 3]), x[0], torch.tensor([0, 2, 2]), mode="mean"
                ),
            ),
            rows,
        ),
        "samples": (
            lambda x: (
                *(
                    nn.grid_sample(x, x[:, :2].permute(0, 2, 3, 1) * 2, mode, padding, False)
                    for mode in ("bilinear", "nearest", "bicubic")
                    for padding in ("zeros", "border", "reflection")
                ),
                nn.grid_sample(x, x[:, 2:].permute(0, 2, 3, 1), "bilinear", "reflection", True),
                nn.fold(nn.unfold(x, 3, 1, 1, 2), (9, 10), 3, 1, 1, 2),
                nn.interpolate(x.flatten(2), scale_factor=2, mode="linear"),
                nn.interpolate(x[:, None], size=(3, 12, 6), mode="trilinear"),
                nn.interpolate(x[:, None], scale_factor=2, mode="nearest"),
                nn.pad(x[:, None], (1, 2, 1, 0, 2, 1), "reflect"),
                nn.pad(x, (1, 2, 3, 4), "replicate"),
                nn.instance_norm(x),
            ),
            image,
        ),
        "products": (
            lambda x: (
                torch.einsum("abc,dec->abde", x, x), x @ x.transpose(1, 2), x[0] @ x[1, 0],
                torch.addmm(x[0, :, :5], x[1], x[2].T, alpha=2.0, beta=0.5),
                nn.scaled_dot_product_attention(x[None], x[None], x[None]),
            ),
            rows,
        ),
    }  # fmt: skip


def mixed(x: Any, experts: Any) -> Any:
    """Rows times the matrix of each one's expert, as Hugging Face's models compute it."""
    import torch  # noqa: PLC0415

    ends = torch.histc(experts.float(), 6, 0, 5).cumsum(0).to(torch.int32)
    order = experts.argsort()
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order))
    matrices = torch.arange(6 * 8 * 16).reshape(6, 8, 16).remainder(7).bfloat16()
    product = torch.nn.functional.grouped_mm(x[order].bfloat16(), matrices, offs=ends)
    return product[inverse].float()


def written(x: Any, places: tuple[Any, ...], values: Any) -> Any:
    result = x.clone()
    result[places] = values
    return result


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize(
    "name",
    [
        "products with weights of a byte", "convolutions", "pooling", "resampling", "norms",
        "movement", "indices", "reductions",
        "arithmetic", "products", "numbers", "angles", "writes", "places", "samples",
        "experts", "filtered resampling", "shifts", "places in order",
    ],
)  # fmt: skip
def test_operators_mean_what_they_mean_to_pytorch(name: str) -> None:
    function, *inputs = operators()[name]
    assert_reads_as(function, *inputs)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_what_is_random_is_refused() -> None:
    torch = pytest.importorskip("torch")

    class Noise(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be missing
        def forward(self, x: Any) -> Any:
            return x + torch.randn(3)

    with pytest.raises(ModelRefused, match=r"aten\.randn\.default .* is random"):
        read_exported(torch.export.export(Noise(), (torch.zeros(3),)))


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.filterwarnings("ignore:The tensor attributes.*assigned during export:UserWarning")
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")
def test_recurrent_layers_are_scans() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = (
        torch.nn.LSTM(6, 10, batch_first=True),
        torch.nn.LSTM(6, 10, num_layers=2, bidirectional=True, proj_size=4),
        torch.nn.GRU(6, 16),
        torch.nn.RNN(6, 9, nonlinearity="relu", bias=False),
    )
    x = torch.randn(3, 7, 6)
    for layer in layers:
        program = torch.export.export(layer.eval(), (x,))
        graph = read_exported(program)
        assert any(isinstance(node, Scan) for node in graph.nodes)
        output, states = layer(x)
        expected = [output, *(states if isinstance(states, tuple) else (states,))]
        tensors = evaluate_graph(graph, [x.numpy()])
        for name, right in zip(graph.outputs, expected, strict=True):
            np.testing.assert_allclose(tensors[name], right.detach().numpy(), atol=1e-5)

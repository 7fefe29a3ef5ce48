"""Programs of torch.export whose tensors have extents that depend on values: held against
PyTorch, cut to what is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.graph_values import graph_outputs
from tuner.models.errors import ModelRefused
from tuner.models.exported_program import read_exported
from tuner.models.graph import Graph, check_graph
from tuner.models.reference.bounded_outputs import cut

torch = pytest.importorskip("torch")
Tensor = Any
SCORES = torch.tensor([[0.2, -1.0, 0.9, 0.1], [-0.3, 0.8, 0.0, -0.7], [0.6, 0.5, -0.1, 0.3]])


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function


def graph_of(function: Callable[..., Any], *inputs: Tensor) -> Graph:
    graph = read_exported(torch.export.export(Net(function), inputs))
    check_graph(graph)
    return graph


def keypoints(scores: Tensor, image: Tensor) -> tuple[Tensor, ...]:
    """As detectors of points end: places above a threshold, those near the border left out,
    what the image has there, and all of it written into tensors of zeros."""
    places = torch.nonzero(scores > 0)
    found = scores[tuple(places.t())]
    inside = (places[:, 0] >= 0) & (places[:, 1] < 3)
    places, found = places[inside], found[inside]
    points = torch.flip(places, [1]).to(torch.float32)
    grid = ((points - 0.5) / torch.tensor([[3.0, 2.0]]) * 2 - 1).view(1, 1, -1, 2)
    sampled = torch.nn.functional.grid_sample(image, grid, align_corners=True)
    described = torch.nn.functional.normalize(sampled.reshape(1, 2, -1), dim=1)[0].transpose(0, 1)
    batch = torch.zeros((1, points.shape[0], 2))
    batch[0, : points.shape[0]] = points
    mask = torch.zeros((1, points.shape[0]), dtype=torch.int32)
    mask[0, : points.shape[0]] = 1
    return batch / torch.tensor([4, 3]), found, described, mask


def by_masks(scores: Tensor, table: Tensor) -> tuple[Tensor, ...]:
    """Rows and elements by masks; sums, softmax and products of what is there."""
    rows = table[scores[:, 0] > 0]
    chosen = scores[scores > 0]
    return (
        rows.sum(0), rows.mean(0), rows.amax(0), (rows < 0).any(0), chosen.softmax(0),
        rows @ table.t(), rows.t() @ rows, chosen.cumsum(0), rows.argmin(0),
        torch.nn.functional.layer_norm(rows, (3,)), rows.unsqueeze(1).expand(-1, 2, -1),
        torch.cat([chosen, table[0], chosen]), rows.flatten(), chosen[1:], rows[:2, 1:],
        chosen * torch.arange(chosen.shape[0]),
    )  # fmt: skip


def routed(scores: Tensor, table: Tensor) -> tuple[Tensor]:
    """Rows through the experts that they choose, each with the rows that chose it."""
    weights, chosen = scores.topk(2, dim=1)
    result = torch.zeros(3, 3)
    for expert in range(4):
        rows, slots = torch.where(chosen == expert)
        hidden = torch.nn.functional.silu(table[rows] @ table) * weights[rows, slots, None]
        result.index_add_(0, rows, hidden + expert)
    return (result,)


def put(scores: Tensor, table: Tensor) -> tuple[Tensor, ...]:
    """As many values as a mask or places have, and what a mask selects."""
    mask, (i, j) = table > 0, torch.where(scores > 0)
    elements, rows, places = table.clone(), table.clone(), scores.clone()
    elements[mask] = table[mask] * 2
    rows[scores[:, 0] > 0] = table[scores[:, 0] > 0] + torch.arange(3)
    places[i, j] = scores[i, j] * torch.arange(scores[i, j].shape[0])
    added = scores.index_put((i,), scores[i] + 1, accumulate=True)
    selected = scores.masked_select(scores[:, :1] > 0)
    return elements, rows, places, added, selected, selected.max(), selected.min() * 2


def by_condition(scores: Tensor, table: Tensor) -> tuple[Tensor, ...]:
    """Rows of a side that a condition chooses, which has fewer than the other."""
    rows = torch.cond(scores.sum() > 1, lambda s: s[:2].exp(), lambda s: s.neg(), (scores,))
    return rows * 2, rows.sum(0)


TABLE = torch.arange(9.0).reshape(3, 3) * torch.tensor([1.0, -1.0, 0.5]) - 2


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # of PyTorch to itself
@pytest.mark.parametrize(
    ("function", "other"),
    [
        (keypoints, torch.arange(24.0).reshape(1, 2, 3, 4)),
        (by_masks, TABLE),
        (routed, TABLE),
        (put, TABLE),
        (by_condition, TABLE),
    ],
    ids=["keypoints", "by_masks", "routed", "put", "by_condition"],
)
def test_a_graph_computes_what_the_program_does(
    function: Callable[..., Any], other: Tensor
) -> None:
    graph = graph_of(function, SCORES, other)
    assert graph.bounded or function is routed
    for scores in (SCORES, -SCORES, SCORES.abs() + 1):
        right = function(scores, other)
        got = cut(graph, graph_outputs(graph, [scores.numpy(), other.numpy()]))
        for array, tensor in zip(got, right, strict=True):
            np.testing.assert_allclose(array, tensor.numpy(), 1e-5, 1e-6, strict=True)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda x: x[x > 0].repeat(2), r"'repeat\w*' has a dynamic extent 2\*u0"),
        (lambda x: x[x > 0].sort()[0], r"operator aten\.sort\.default \('sort\w*'\) takes no ext"),
        (lambda x: x[x > 0] * x[x > 0].shape[0], r"operator aten\.mul\.Tensor \('mul\w*'\) takes"),
    ],
)
def test_what_takes_no_such_extent_is_refused_with_a_way_out(
    function: Callable[..., Any], what: str
) -> None:
    with pytest.raises(ModelRefused, match=f"{what}.*torch.onnx.export"):
        graph_of(function, SCORES)

"""Indices out of range: where they are inputs, a library leaves such a call to PyTorch, which has
an error to raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from tests.support.torch_libraries import region_library  # noqa: E402
from tuner.models.errors import ModelRefused  # noqa: E402
from tuner.models.graph import check_graph  # noqa: E402
from tuner.models.graph_archive import packed, unpacked  # noqa: E402
from tuner.models.reference.check_inputs import check_inputs  # noqa: E402
from tuner.torch.apart import Apart  # noqa: E402
from tuner.torch.decompositions import rules  # noqa: E402
from tuner.torch.layouts import layouts_of  # noqa: E402
from tuner.torch.native import InputRefused, native  # noqa: E402
from tuner.torch.partition import Region, partition  # noqa: E402
from tuner.workload.expression import Within  # noqa: E402

functional = torch.nn.functional
TABLE, SMALL = torch.randn(10, 4), torch.randn(7, 4)
IDS = torch.tensor([[1, 2, 3], [4, 5, 6]])


def within(start: int, stop: int) -> Within:
    return Within(start=start, stop=stop)


def only_region(function: Callable[..., Any], *inputs: Any) -> Region:
    graph = make_fx(function, tracing_mode="fake")(*inputs).graph
    (region,) = partition(graph, Apart(rules())).regions
    return region


def embedded(ids: Any, table: Any) -> Any:
    return functional.embedding(ids, table)


RANGES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Within | None]] = {
    "embedding": (embedded, (IDS, TABLE), within(0, 10)),
    "of 32 bits": (embedded, (IDS.int(), TABLE), within(0, 10)),
    "transposed": (lambda i, t: functional.embedding(i.T, t), (IDS, TABLE), within(0, 10)),
    "flat": (lambda i, t: t[i.view(-1)], (IDS, TABLE), within(-10, 10)),
    "NumPy's": (lambda i, t: t[:, i], (IDS, TABLE.T), within(-10, 10)),
    "put": (lambda i, t: t.index_put((i,), t[0]), (IDS, TABLE), within(-10, 10)),
    "selected": (lambda i, t: t.index_select(0, i), (IDS[0], TABLE), within(0, 10)),
    "repeated": (
        lambda i, t: t.gather(0, i[:, None].expand(3, 4)),
        (IDS[0], TABLE),
        within(0, 10),
    ),
    "added": (lambda i, t: t.index_add(0, i, t[:3]), (IDS[0], TABLE), within(0, 10)),
    "scattered": (lambda i, t: t.scatter_add(1, i + 1, t), (IDS, TABLE), None),
    "of two tables": (
        lambda i, a, b: functional.embedding(i, a) + functional.embedding(i, b),
        (IDS, TABLE, SMALL),
        within(0, 7),
    ),
    "of classes": (
        lambda i, t: functional.cross_entropy(t, i),
        (torch.arange(10) % 4, TABLE),
        within(-100, 4),
    ),
    # PyTorch need not look at what is computed, or is not read.
    "a part": (lambda i, t: functional.embedding(i[:, 1:], t), (IDS, TABLE), None),
    "clamped": (lambda i, t: t[i.clamp(0, 9)], (IDS, TABLE), None),
    "a diagonal": (lambda i, t: t[i.diagonal()], (IDS[:, :2].contiguous(), TABLE), None),
}


@pytest.mark.parametrize("name", RANGES)
def test_the_ranges_are_those_that_pytorch_wants(name: str) -> None:
    function, inputs, expected = RANGES[name]
    graph = only_region(function, *inputs).graph
    assert [*graph.ranges.values()] == ([] if expected is None else [expected])
    assert all(graph.tensor(given).dtype in ("int32", "int64") for given in graph.ranges)


def test_ranges_are_kept_with_a_graph_and_hold_for_what_it_is_tried_on() -> None:
    graph = only_region(lambda i, t: t.index_select(0, i) * 2, IDS[0], TABLE[:1]).graph
    (name,) = graph.ranges
    assert graph.ranges[name] == within(0, 1)
    assert unpacked(packed(graph)).ranges == graph.ranges
    place = [tensor.name for tensor in graph.inputs].index(name)
    assert np.array_equal(check_inputs(graph, {})[place], [0, 0, 0])
    other = graph.inputs[1 - place].name
    for ranges, message in (
        ({"x": within(0, 1)}, "'x' has a range, but is no input"),
        ({other: within(0, 1)}, "facts are stated of int32 and int64"),
        ({name: within(1, 1)}, "is empty"),
    ):
        with pytest.raises(ModelRefused, match=message):
            check_graph(replace(graph, ranges=ranges))


def unused(message: str) -> Any:
    raise AssertionError(message)


@pytest.mark.slow
def test_a_library_refuses_what_pytorch_does(tmp_path: Path) -> None:
    """And writes nothing then, also where it would replace an input."""

    def function(ids: Any, rows: Any, table: Any, total: Any) -> Any:
        total.copy_(total.index_add(0, rows, table[:3]))
        return functional.embedding(ids, table) * 2

    total = torch.zeros(7, 4)
    region = only_region(function, IDS, IDS[0], TABLE, total)
    path = tmp_path / "region.so"
    path.write_bytes(region_library(region.graph))
    call = native(path, region.packed, layouts_of(region), unused)
    names = [node.name for node in region.part.inputs]

    def called(**given: Any) -> Any:
        return call(*[given[name.removesuffix("_1")] for name in names])

    good = {"ids": IDS, "rows": IDS[0].clone(), "table": TABLE, "total": total}
    for name, value in (("ids", 10), ("ids", -1), ("rows", 7), ("rows", -1), ("ids", 2**40)):
        bad = {**good, name: good[name].clone()}
        bad[name].view(-1)[1] = value
        before = total.clone()
        with pytest.raises(InputRefused):
            called(**bad)
        assert total.equal(before)
        with pytest.raises((IndexError, RuntimeError)):
            function(**bad)
        total.copy_(before)
    right = function(**{**good, "total": torch.zeros(7, 4)})
    assert any(torch.allclose(result, right) for result in called(**good) if result.dim() == 3)

"""Equal elements in PyTorch's sorts and selections, whose order it leaves open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.torch_programs import exported
from tuner.models.exported_program import program_outputs, read_exported
from tuner.models.reference.evaluation import evaluate_outputs

torch = pytest.importorskip("torch")


def orders(x: Any) -> tuple[Any, ...]:
    return (
        *x.sort(), *x.sort(dim=0, stable=False, descending=True), x.argsort(descending=True),
        *x.topk(400), *x.topk(90, largest=False, sorted=False),
        *x.kthvalue(333), *x.kthvalue(2, 0, keepdim=True), *x.median(1),
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_programs_take_equal_elements_in_the_order_of_positions(dtype: str) -> None:
    x = np.random.default_rng(0).integers(-3, 4, (3, 700)).astype(dtype)
    if dtype == "float32":
        x[1, [70, 300]] = np.nan
    program = exported(orders, torch.from_numpy(x))
    graph = read_exported(program)
    by_graph, by_pytorch = evaluate_outputs(graph, [x]), program_outputs(program, graph, [x])
    for number, (array, right) in enumerate(zip(by_graph, by_pytorch, strict=True)):
        np.testing.assert_array_equal(array, right, err_msg=str(number))

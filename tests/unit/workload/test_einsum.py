"""Products in Einstein's notation: NumPy's meaning, and operands read as they lie in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tuner.errors import UsageError
from tuner.workload.einsum import Contraction, Operand, contraction_of, pairs, product_of, step_of
from tuner.workload.reference import evaluate

Array = np.ndarray[Any, np.dtype[Any]]
CASES = [
    ("bshk,bhksc->bhsc", (2, 3, 4, 5), (2, 4, 5, 3, 6)),
    ("ij,jk", (3, 4), (4, 5)),
    ("kj,ji", (3, 4), (4, 5)),
    ("ii->i", (4, 4)),
    ("ii", (4, 4)),
    ("i,i->", (7,), (7,)),
    ("ij,ij", (2, 3), (2, 3)),
    ("i,j->i", (3,), (4,)),
    ("ij,k->kij", (3, 4), (2,)),
    ("ij->ji", (3, 4)),
    ("...ij,...jk->...ik", (2, 3, 4, 5), (3, 5, 6)),
    ("...ij,jk", (2, 3, 4), (4, 5)),
    ("i...,i...->...", (3, 2, 4), (3, 4)),
    ("ij,jk->ik", (3, 1), (4, 5)),
    ("iij,jk->ik", (3, 3, 4), (4, 2)),
    ("aB,Bc->ac", (2, 3), (3, 4)),
]


def described(array: Array) -> Operand:
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return Operand(array.shape, strides, array.dtype.name)


def computed(contraction: Contraction, arrays: list[Array]) -> Array:
    """What the workload computes on the memory of the arrays, in float64."""
    expression = contraction.workload.expression
    memory = {
        tensor.name: _flat(array, tensor.shape)
        for tensor, array in zip(expression.inputs, arrays, strict=True)
    }
    (result,) = evaluate(expression, memory).values()
    return result.reshape(contraction.shape)


def _flat(array: Array, shape: tuple[int, ...]) -> Array:
    """The elements from the array's first on, as they lie in memory."""
    dense = np.cumprod([1, *shape[:0:-1]])[::-1] * array.itemsize
    return np.lib.stride_tricks.as_strided(array, shape, tuple(map(int, dense)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
@pytest.mark.parametrize("seed", range(3))
def test_workloads_compute_what_numpy_does(case: tuple[Any, ...], seed: int) -> None:
    """On operands in any order of memory."""
    subscripts, *shapes = case
    random = np.random.default_rng(seed)
    arrays = []
    for shape in shapes:
        order = random.permutation(len(shape))
        stored = random.standard_normal([shape[axis] for axis in order])
        arrays.append(stored.transpose(np.argsort(order)))
    product = product_of(subscripts, [array.shape for array in arrays])
    contraction = contraction_of(product, [described(array) for array in arrays])
    assert contraction is not None
    right = np.einsum(subscripts, *arrays)
    np.testing.assert_allclose(computed(contraction, arrays), right, rtol=1e-12, atol=1e-12)
    assert contraction.shape == right.shape


def test_repeated_elements_are_no_dimension() -> None:
    row = np.arange(5.0)
    arrays = [np.broadcast_to(row, (7, 5)), row]
    contraction = contraction_of(
        product_of("ij,j->i", [(7, 5), (5,)]), list(map(described, arrays))
    )
    assert contraction is not None
    assert [tensor.shape for tensor in contraction.workload.expression.inputs] == [(5,), (5,)]
    np.testing.assert_allclose(computed(contraction, arrays), np.einsum("ij,j->i", *arrays))


def test_strides_are_in_the_key() -> None:
    product = product_of("ij,jk->ik", [(8, 8), (8, 8)])
    plain, turned = (Operand((8, 8), strides, "float32") for strides in ((8, 1), (1, 8)))
    keys = {
        contraction.workload.key
        for first in (plain, turned)
        for second in (plain, turned)
        if (contraction := contraction_of(product, [first, second])) is not None
    }
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("shape", "strides", "dtype"),
    [
        ((4, 4), (8, 1), "float32"),  # a slice of longer rows
        ((4, 4), (4, -1), "float32"),
        ((4, 4), (8, 2), "float32"),
        ((4, 4), (4, 1), "complex64"),
        ((4, 4), (4, 1), "int32"),
        ((1, 1), (1, 1), "float32"),
        ((0, 4), (4, 1), "float32"),
        ((4, 4), (2, 1), "float32"),  # overlapping rows
    ],
)
def test_others_have_no_workload(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: str
) -> None:
    product = product_of("ij->ji", [shape])
    assert contraction_of(product, [Operand(shape, strides, dtype)]) is None


@pytest.mark.parametrize(
    ("subscripts", "shapes", "says"),
    [
        ("ij,jk", [(2, 3)], "has 2 operands, and 1 are given"),
        ("ij", [(2,)], "'ij' has 2 labels for 1 dimensions"),
        ("i", [(2, 3)], "'i' has 1 labels for 2 dimensions"),
        ("i1->i", [(2, 3)], "'1' is no letter"),
        ("i.j->i", [(2, 3, 4)], "'.' is no letter"),
        ("ij->ii", [(2, 3)], "has a label twice"),
        ("ij->k", [(2, 3)], "or one of no operand"),
        ("i,i", [(2,), (3,)], "'i' has the extents 2 and 3"),
        ("...i->i->i", [(2, 3)], "'-' is no letter"),
    ],
)
def test_bad_subscripts(subscripts: str, shapes: list[tuple[int, ...]], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        product_of(subscripts, shapes)
    assert says in str(caught.value) and subscripts in str(caught.value)


@pytest.mark.parametrize(
    "subscripts", ["ij,jk,kl,lm->im", "i,i,i,i,i->i", "a,b,c->cba", "ij,jk,ki"]
)
def test_more_operands_are_multiplied_in_pairs(subscripts: str) -> None:
    parts = subscripts.split("->", maxsplit=1)[0].split(",")
    sizes = dict(zip("abcijklm", range(2, 10), strict=False))
    random = np.random.default_rng(0)
    arrays = [random.standard_normal([sizes[label] for label in part]) for part in parts]
    product = product_of(subscripts, [array.shape for array in arrays])
    left = list(zip(product.operands, arrays, strict=True))
    for places, labels in pairs(product):
        assert len(places) <= 2
        chosen = [left[place] for place in places]
        left = [pair for place, pair in enumerate(left) if place not in places]
        step = step_of([part for part, _ in chosen], labels, [a.shape for _, a in chosen])
        contraction = contraction_of(step, [described(a) for _, a in chosen])
        assert contraction is not None
        left.append((labels, computed(contraction, [a for _, a in chosen])))
    ((_, result),) = left
    np.testing.assert_allclose(result, np.einsum(subscripts, *arrays), rtol=1e-9)

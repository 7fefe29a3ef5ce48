"""Compiled kernels on patterns of every kind: empty rows, one row, no places, duplicates,
indices in no order and at both ends; and patterns that a call must refuse."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.loaded_kernels import loaded
from tests.support.operator_samples import combinations
from tests.support.targets import host_target
from tuner.runtime.loader import LibraryError, TunedFunction
from tuner.spaces.by_target import cpu_space
from tuner.workload.arrays import numpy_dtype
from tuner.workload.catalogue import CATALOGUE
from tuner.workload.expression import Fact, Splits, Tensor, Within
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import parse_spec, workload_from_params
from tuner.workload.workload import Workload

ROWS, COLUMNS, PLACES = 17, 7, 68  # as many rows as two threads have tasks, and one more
DENSITY = PLACES / ROWS / COLUMNS
SPECS = (
    f"spmm:M={ROWS},N={COLUMNS},K=21,density={DENSITY}",
    f"scatter_add:M={COLUMNS},N={PLACES},D=19",
    f"spmm:M=1,N={COLUMNS},K=5,density=1,dtype=float64",
    f"spmv:M={ROWS},N={COLUMNS},density={DENSITY}",
    f"spmv:M=2,N=40,density={PLACES / 80},dtype=float64,index=int64",
    f"sddmm:M={ROWS},N={COLUMNS},K=19,density={DENSITY}",
    f"embedding_bag:V={COLUMNS},D=19,B={ROWS},L=4,mode=mean",
    f"embedding_bag:V={COLUMNS},D=5,B={ROWS},L=4,mode=weighted,dtype=bfloat16",
    f"segment_reduce:M={ROWS},N={PLACES},D=17,mode=max",
    f"segment_reduce:M={ROWS},N={PLACES},D=1,index=int64",
    f"scatter_add:M={COLUMNS},N={PLACES},D=18,mode=min,dtype=float16,index=int64",
    f"gather_matmul:V={COLUMNS},M={ROWS},N=9,K=5",
    f"slide_layer:B=3,D=19,C={COLUMNS},L=5,softmax=true,offset=true",
    f"slide_layer_gradient:B=3,D=19,C={COLUMNS},L=5,dtype=bfloat16",
    f"slide_layer_gradient:B=3,D=19,C={COLUMNS},L=5,A=4,of=weights",
    "dwta_hash:B=3,D=17,T=2,K=3,F=2",
)
FIRST = 2  # specs that run in `make test` as well: kernels are compiled for each


@dataclass(frozen=True)
class Kernels:
    workload: Workload
    functions: tuple[TunedFunction, ...]  # of the default schedule, then one of each sketch


@cache
def kernels(spec: str) -> Kernels:
    workload, folder = parse_spec(spec), Path(mkdtemp())
    space = cpu_space(workload, host_target(), 2).space
    points = space.sample(np.random.default_rng(0), 40)
    configs = {str(config["sketch"]): config for config in map(space.config, points)}
    functions = (
        loaded(workload, folder / f"lib{number}.so", config=config, threads=2)
        for number, config in enumerate([None, *configs.values()])
    )
    return Kernels(workload, tuple(functions))


def some_specs(count: int | None = None) -> pytest.MarkDecorator:
    """All specs; those behind the first `count` in `make test-slow` only."""
    params = [
        pytest.param(spec, marks=pytest.mark.slow if place >= (count or 0) else ())
        for place, spec in enumerate(SPECS)
    ]
    return pytest.mark.parametrize("spec", params, ids=lambda spec: spec.partition(":")[0])


@st.composite
def pointers(draw: st.DrawFn, tensor: Tensor, places: int) -> NDArray[Any]:
    """Pointers of rows: any, and those of no place or of one row that has all."""
    rows = tensor.shape[0] - 1
    kind = draw(st.sampled_from(["any", "none", "first", "last", "one"]))
    if kind == "any":
        inner = draw(st.lists(st.integers(0, places), min_size=rows, max_size=rows))
        return np.array([0, *sorted(inner)], tensor.dtype)
    full = {"none": rows + 1, "first": 1, "last": rows, "one": draw(st.integers(1, rows))}[kind]
    return np.array([0] * full + [places] * (rows + 1 - full), tensor.dtype)


@st.composite
def indices(draw: st.DrawFn, tensor: Tensor, fact: Within) -> NDArray[Any]:
    """Indices in no order, in order or all the same, with both ends of their range."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    made = rng.integers(fact.start, fact.stop, tensor.shape)
    made.flat[[0, -1]] = fact.start, fact.stop - 1
    match draw(st.sampled_from(["any", "rising", "falling", "same"])):
        case "rising":
            made[...] = np.sort(made, axis=None).reshape(made.shape)
        case "falling":
            made[...] = np.sort(made, axis=None)[::-1].reshape(made.shape)
        case "same":
            made[...] = draw(st.sampled_from([fact.start, fact.stop - 1]))
    return made.astype(tensor.dtype)


@st.composite
def arrays(draw: st.DrawFn, workload: Workload) -> dict[str, NDArray[Any]]:
    """Inputs with their facts; of the floats some are 0."""
    rng, made = np.random.default_rng(draw(st.integers(0, 99))), dict[str, NDArray[Any]]()
    for tensor in workload.expression.inputs:
        match tensor.fact:
            case Splits(stop=stop):
                made[tensor.name] = draw(pointers(tensor, stop))
            case Within():
                made[tensor.name] = draw(indices(tensor, tensor.fact))
            case None:
                values = rng.standard_normal(tensor.shape) * (rng.random(tensor.shape) < 0.7)
                made[tensor.name] = values.astype(numpy_dtype(tensor.dtype))
    return made


def ends(fact: Fact) -> tuple[int, int]:
    """The least and the greatest element that a fact allows."""
    match fact:
        case Within(start=start, stop=stop):
            return start, stop - 1
        case Splits(stop=stop):
            return 0, stop


def test_every_operator_with_facts_is_here() -> None:
    samples = {operator.name: next(iter(combinations(operator))) for operator in CATALOGUE}
    stated = {
        name
        for name, params in samples.items()
        for tensor in workload_from_params(name, params).expression.inputs
        if tensor.fact is not None
    }
    assert stated == {spec.partition(":")[0] for spec in SPECS}


@some_specs()
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_kernels_are_right_on_every_pattern(spec: str, data: st.DataObject) -> None:
    made = kernels(spec)
    expression = made.workload.expression
    given_arrays = data.draw(arrays(made.workload))
    want, size = evaluate_with_magnitude(expression, given_arrays)
    (output,) = expression.outputs
    for function in made.functions:
        got = function(*given_arrays.values())
        if expression.tensor(output).dtype == "bfloat16":
            got = got.view(numpy_dtype("bfloat16"))
        off = max_rel_error(expression, {output: got}, want, size)
        assert off <= error_bound(expression), off


@some_specs(FIRST)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_hostile_patterns_are_refused(spec: str, data: st.DataObject) -> None:
    made = kernels(spec)
    stated = [tensor for tensor in made.workload.expression.inputs if tensor.fact is not None]
    tensor = data.draw(st.sampled_from(stated))
    assert tensor.fact is not None
    least, most = ends(tensor.fact)
    given_arrays = data.draw(arrays(made.workload))
    limits = np.iinfo(tensor.dtype)
    place = data.draw(st.integers(0, int(np.prod(tensor.shape)) - 1))
    wrong = st.integers(int(limits.min), least - 1) | st.integers(most + 1, int(limits.max))
    given_arrays[tensor.name].flat[place] = data.draw(wrong)
    for function in made.functions:
        with pytest.raises(LibraryError) as caught:
            function(*given_arrays.values())
        assert caught.value.kind == "value"

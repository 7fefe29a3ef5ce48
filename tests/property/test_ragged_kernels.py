"""Compiled kernels on patterns of every kind: empty rows, one row, no places, duplicates,
columns in no order and at both ends; and patterns that a call must refuse."""

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

from tests.support.loaded_kernels import loaded
from tests.support.targets import host_target
from tuner.runtime.loader import LibraryError, TunedFunction
from tuner.spaces.by_target import cpu_space
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import parse_spec
from tuner.workload.workload import Workload

ROWS, COLUMNS, PLACES = 17, 7, 68  # as many rows as two threads have tasks, and one more
SPECS = (
    f"spmm:M={ROWS},N={COLUMNS},K=21,density={PLACES / ROWS / COLUMNS}",
    f"spmv:M={ROWS},N={COLUMNS},density={PLACES / ROWS / COLUMNS},index=int64",
    f"embedding_bag:V={COLUMNS},D=19,B={ROWS},L=4,mode=mean",
    f"segment_reduce:M={ROWS},N={PLACES},D=17,mode=max",
    f"scatter_add:M={COLUMNS},N={PLACES},D=19",
    f"scatter_add:M={COLUMNS},N={PLACES},D=18,mode=min,dtype=float16,index=int64",
)


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


def arrays(workload: Workload, pointers: list[int], seed: int) -> dict[str, Any]:
    rng, made = np.random.default_rng(seed), dict[str, Any]()
    for tensor in workload.expression.inputs:
        if tensor.name == "P":
            made["P"] = np.array(pointers, tensor.dtype)
        elif tensor.name == "J":
            columns = rng.integers(0, COLUMNS, tensor.shape)
            columns[[0, -1]] = 0, COLUMNS - 1
            made["J"] = columns.astype(tensor.dtype)
        else:
            made[tensor.name] = rng.standard_normal(tensor.shape).astype(tensor.dtype)
    return made


@st.composite
def pointer_lists(draw: st.DrawFn, places: int) -> list[int]:
    kind = draw(st.sampled_from(["any", "none", "first", "last", "one"]))
    if kind == "any":
        inner = draw(st.lists(st.integers(0, places), min_size=ROWS, max_size=ROWS))
        return [0, *sorted(inner)]
    full = {"none": ROWS + 1, "first": 1, "last": ROWS, "one": draw(st.integers(1, ROWS))}[kind]
    return [0] * full + [places] * (ROWS + 1 - full)


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.partition(":")[0])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_kernels_are_right_on_every_pattern(spec: str, data: st.DataObject) -> None:
    made = kernels(spec)
    expression = made.workload.expression
    places = next((t.fact.stop for t in expression.inputs if t.name == "P" and t.fact), 0)
    given_arrays = arrays(
        made.workload, data.draw(pointer_lists(places)), data.draw(st.integers(0, 99))
    )
    want, size = evaluate_with_magnitude(expression, given_arrays)
    for function in made.functions:
        got = {"Y": function(*given_arrays.values())}
        off = max_rel_error(expression, got, want, size)
        assert off <= error_bound(expression), off


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.partition(":")[0])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_hostile_patterns_are_refused(spec: str, data: st.DataObject) -> None:
    made = kernels(spec)
    expression = made.workload.expression
    tensor = data.draw(st.sampled_from([t for t in expression.inputs if t.fact is not None]))
    assert tensor.fact is not None
    stop = tensor.fact.stop
    given_arrays = arrays(made.workload, [4 * row for row in range(ROWS + 1)], 0)
    limits = np.iinfo(tensor.dtype)
    wrong = st.integers(int(limits.min), -1) | st.integers(stop + 1, int(limits.max))
    place = data.draw(st.integers(0, tensor.shape[0] - 1))
    given_arrays[tensor.name][place] = data.draw(wrong)
    for function in made.functions:
        with pytest.raises(LibraryError) as caught:
            function(*given_arrays.values())
        assert caught.value.kind == "value"

"""Vectors of elements a few places apart: the right elements, whole loads only, and
none beyond the first and the last."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm_ffi import structural_map

from tests.support.targets import host_target
from tuner.lowering.compiler import build
from tuner.lowering.passes.strided_loads import shuffle_strided_loads
from tuner.spaces.program.program import LARGEST_SHUFFLED_STRIDE

FIRST = 3


def strided(apart: int, lanes: int, dtype: str, first: int = FIRST) -> tvm.IRModule:
    """`Y[i] = X[first + apart * i]` for one vector of i, and nothing in X behind the
    last element of it."""
    source = tirx.decl_buffer((first + max(apart, 0) * (lanes - 1) + 1,), dtype, "X")
    target = tirx.decl_buffer((lanes,), dtype, "Y")

    def vector(start: int, stride: int) -> list[tirx.Ramp]:
        return [tirx.Ramp(tirx.const(start, "int32"), tirx.const(stride, "int32"), lanes)]

    store = tirx.BufferStore(target, tirx.BufferLoad(source, vector(first, apart)), vector(0, 1))
    function = tirx.PrimFunc([source, target], store).with_attr(
        {"global_symbol": "kernel", "s_tir": True}
    )
    return tvm.IRModule({"kernel": function})


def loads(mod: tvm.IRModule) -> list[tuple[int, int, int]]:
    """(first element, distance, lanes) of each load of a vector."""
    ramps = []

    def note(load: tvm.ir.TensorLoad) -> tvm.ir.TensorLoad:
        (ramp,) = load.indices
        ramps.append((int(ramp.base), int(ramp.stride), int(ramp.lanes)))
        return load

    structural_map(mod["kernel"], (tvm.ir.TensorLoad, note))
    return ramps


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("apart", range(2, LARGEST_SHUFFLED_STRIDE + 1))
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_elements_are_picked_from_whole_loads(apart: int, lanes: int, dtype: str) -> None:
    mod = strided(apart, lanes, dtype)
    made = loads(shuffle_strided_loads(mod))
    assert len(made) == apart and all(stride == 1 and wide == lanes for _, stride, wide in made)
    assert min(first for first, _, _ in made) == FIRST
    assert max(first for first, _, _ in made) + lanes - 1 == FIRST + apart * (lanes - 1)
    given = np.arange(FIRST + apart * (lanes - 1) + 1).astype(dtype)
    got = tvm.runtime.tensor(np.zeros(lanes, dtype))
    build(mod, host_target())["kernel"](tvm.runtime.tensor(given), got)
    np.testing.assert_array_equal(got.numpy(), given[FIRST::apart])


@pytest.mark.parametrize(
    ("apart", "lanes"), [(1, 16), (LARGEST_SHUFFLED_STRIDE + 1, 16), (2, 2), (-2, 8)]
)
def test_other_vectors_are_left_alone(apart: int, lanes: int) -> None:
    mod = strided(apart, lanes, "float32", first=FIRST + 2 * lanes)
    assert loads(shuffle_strided_loads(mod)) == loads(mod) == [(FIRST + 2 * lanes, apart, lanes)]

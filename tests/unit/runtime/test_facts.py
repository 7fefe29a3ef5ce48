"""What a call checks of integers: pointers of rows and indices, honest and hostile."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.targets import host_target
from tuner.runtime.link import Function, link
from tuner.runtime.loader import Library, LibraryError, aligned_empty
from tuner.runtime.toolchain import Toolchain
from tuner.workload.dtypes import DType
from tuner.workload.expression import Splits, Tensor, Within

LENGTH, STOP, START = 37, 100, 3  # longer than two of the check's blocks, and no multiple
LONG = 40_003  # so many that threads share the check, in parts that end within


@pytest.fixture(scope="module", params=[(), ("avx2",), ("avx2", "avx512f")], ids=" ".join)
def checked(
    request: pytest.FixtureRequest,
    toolchain: Toolchain,
    object_code: bytes,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Library]:
    """A kernel that does nothing, with pointers P and indices J of one dtype. Its features say
    how long the vectors of the check are."""
    isa = tuple(request.param)
    if not set(isa) <= set(host_target().isa):
        pytest.skip(f"this CPU lacks {isa}")
    folder, made = tmp_path_factory.mktemp("facts"), dict[str, Library]()

    def library(dtype: DType) -> Library:
        if dtype not in made:
            function = taking(dtype, LENGTH, object_code, isa)
            path = Path(folder) / f"lib{dtype}.so"
            path.write_bytes(link("facts", [function], toolchain=toolchain))
            made[dtype] = Library(path)
        return made[dtype]

    return library  # type: ignore[return-value]  # of a dtype's name


@pytest.fixture
def shared(toolchain: Toolchain, object_code: bytes, tmp_path: Path) -> Library:
    """The same of long inputs, on three threads."""
    function = taking("int32", LONG, object_code, host_target().isa, threads=3)
    path = tmp_path / "libshared.so"
    path.write_bytes(link("facts", [function], toolchain=toolchain))
    return Library(path)


def taking(
    dtype: DType, length: int, object_code: bytes, isa: Collection[str], *, threads: int = 1
) -> Function:
    within = Within(start=START, stop=STOP)
    return Function(
        symbol="take",
        inputs=(
            Tensor(name="P", shape=(length,), dtype=dtype, fact=Splits(stop=STOP)),
            Tensor(name="J", shape=(length,), dtype=dtype, fact=within),
        ),
        outputs=(Tensor(name="Y", shape=(16,), dtype="float32"),),
        object_code=object_code,
        isa=tuple(isa),
        threads=threads,
        tvm_symbol="entry_empty",
    )


def honest(dtype: str, length: int = LENGTH) -> tuple[NDArray[Any], NDArray[Any]]:
    pointers, indices = aligned_empty((length,), dtype), aligned_empty((length,), dtype)
    pointers[:] = np.arange(length) * STOP // (length - 1)
    indices[:] = START + np.arange(length) * 7 % (STOP - START)
    return pointers, indices


def refusal(library: Library, pointers: NDArray[Any], indices: NDArray[Any]) -> str:
    """The text of the error; empty where the call is accepted."""
    try:
        library.call("take", [pointers, indices, aligned_empty((16,), "float32")])
    except LibraryError as error:
        assert error.kind == "value"
        return str(error)
    return ""


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_honest_patterns_are_taken(checked: Callable[[str], Library], dtype: str) -> None:
    pointers, indices = honest(dtype)
    assert not refusal(checked(dtype), pointers, indices)
    pointers[:] = 0  # no places
    indices[:] = STOP - 1
    assert not refusal(checked(dtype), pointers, indices)
    pointers[1:] = STOP  # all in one row
    indices[:] = START
    assert not refusal(checked(dtype), pointers, indices)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    ("name", "place", "value", "text"),
    [
        ("P", 0, 1, r"P\[0\] is 1; the first row begins at 0"),
        ("P", 20, 0, r"P\[20\] is 0, less than the element before"),
        ("P", 36, 101, r"P\[36\] is 101; it must be from 0 to 100"),
        ("P", 5, -1, r"P\[5\] is -1; it must be from 0"),
        ("P", 36, 0, r"P\[36\] is 0, less than the element before"),
        ("J", 0, 2, r"J\[0\] is 2; it must be from 3 to 99"),
        ("J", 36, 100, r"J\[36\] is 100; it must be from 3 to 99"),
        ("J", 17, -(2**31), r"J\[17\] is -2147483648; it must be"),
        ("J", 17, 2**31 - 1, r"J\[17\] is 2147483647; it must be"),
    ],
)
def test_hostile_elements_are_named(
    checked: Callable[[str], Library], dtype: str, name: str, place: int, value: int, text: str
) -> None:
    pointers, indices = honest(dtype)
    (pointers if name == "P" else indices)[place] = value
    with pytest.raises(LibraryError, match=text) as caught:
        checked(dtype).call("take", [pointers, indices, aligned_empty((16,), "float32")])
    assert caught.value.kind == "value"


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_pointers_that_wrap_around_are_refused(
    checked: Callable[[str], Library], dtype: str
) -> None:
    """Each is more than the one before by less than half of the range."""
    limits, (pointers, indices) = np.iinfo(dtype), honest(dtype)
    pointers[:] = 0
    pointers[17:20] = limits.max, limits.min, -1
    assert "P[17] is" in refusal(checked(dtype), pointers, indices)


def test_counts_beyond_32_bits_are_refused(checked: Callable[[str], Library]) -> None:
    for value in (2**32, 2**32 + 5, -(2**63), 2**63 - 1):
        pointers, indices = honest("int64")
        indices[3] = value
        assert "J[3]" in refusal(checked("int64"), pointers, indices)
        pointers, indices = honest("int64")
        pointers[4] = value
        assert "P[4]" in refusal(checked("int64"), pointers, indices)


def test_threads_share_the_checks_of_long_inputs(shared: Library) -> None:
    pointers, indices = honest("int32", LONG)
    before = len(os.listdir("/proc/self/task"))
    shared.set_num_threads(1)
    assert not refusal(shared, pointers, indices)
    assert len(os.listdir("/proc/self/task")) == before
    shared.set_num_threads(0)
    assert not refusal(shared, pointers, indices)
    assert len(os.listdir("/proc/self/task")) == before + 2  # the kernel itself has no loop


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_whatever_is_wrong_in_long_inputs_is_seen(shared: Library, threads: int) -> None:
    """Also where the parts of two threads meet, whose elements are compared."""
    shared.set_num_threads(threads)
    pointers, indices = honest("int32", LONG)
    meet = [LONG * share // threads for share in range(1, threads)]
    near = {place + off for place in meet for off in range(-20, 21)}
    for place in sorted({2, LONG - 1, *near}):
        kept, indices[place] = indices[place], STOP
        assert f"J[{place}] is {STOP}" in refusal(shared, pointers, indices)
        indices[place] = kept
        falling = np.where(np.arange(LONG) < place, 1, 0).astype("int32")
        falling[0] = 0
        pointers[:], honest_pointers = falling, pointers.copy()
        assert f"P[{place}] is 0, less than" in refusal(shared, pointers, indices)
        pointers[:] = honest_pointers


@settings(deadline=None)
@given(st.data())
def test_a_call_is_refused_exactly_where_a_fact_fails(
    checked: Callable[[str], Library], data: st.DataObject
) -> None:
    dtype = data.draw(st.sampled_from(["int32", "int64"]))
    limits = np.iinfo(dtype)
    near = st.sampled_from([-1, 0, 1, START - 1, START, STOP - 1, STOP, STOP + 1])
    anything = near | st.integers(int(limits.min), int(limits.max))
    pointers, indices = honest(dtype)
    for _ in range(data.draw(st.integers(0, 3))):
        array = pointers if data.draw(st.booleans()) else indices
        array[data.draw(st.integers(0, LENGTH - 1))] = data.draw(anything)
    splits = pointers[0] == 0 and pointers[-1] <= STOP
    splits = splits and bool(np.all(pointers[1:] >= pointers[:-1]))
    within = bool(np.all((indices >= START) & (indices < STOP)))
    assert bool(refusal(checked(dtype), pointers, indices)) != (splits and within)

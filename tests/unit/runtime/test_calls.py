"""Calling linked kernels: results, each error code with its text, threads, workspace,
forks, two libraries at once."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tuner.runtime.link import Function, link, runtime_sources
from tuner.runtime.loader import Array, DTypeError, Library, LibraryError, aligned_empty
from tuner.runtime.signature import ShapeError
from tuner.runtime.toolchain import Toolchain
from tuner.workload.expression import Tensor

Make = Callable[..., Library]


def pair() -> tuple[Array, Array]:
    given, result = aligned_empty((1024,), "float32"), aligned_empty((1024,), "float32")
    given[:] = np.arange(1024)
    result[:] = np.nan
    return given, result


@pytest.mark.parametrize("entry", ["double", "parallel", "nested", "workspace"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_kernels_give_their_result(library: Make, entry: str, threads: int) -> None:
    loaded = library(entry, threads=threads)
    for _ in range(20):
        given, result = pair()
        loaded.call(f"do_{entry}", [given, result])
        np.testing.assert_array_equal(result, 2 * given)


def test_errors_carry_their_code_and_text(library: Make) -> None:
    loaded = library("double")
    given, result = pair()
    backing = aligned_empty((2048,), "float32")
    cases = [
        ("alignment", [backing[1:1025], result], "argument 0 (X)"),
        ("overlap", [backing[:1024], backing[16:1040]], "output Y (4096 bytes"),
        ("overlap", [given, given], "overlaps X"),
    ]
    for kind, arrays, text in cases:
        with pytest.raises(LibraryError, match=r"do_double") as caught:
            loaded.call("do_double", arrays)
        assert caught.value.kind == kind
        assert text in str(caught.value)


def test_null_pointers_are_refused(library: Make) -> None:
    loaded = library("double")
    given, _ = pair()
    entry = ctypes.CDLL(str(loaded.path)).do_double
    assert entry(ctypes.c_void_p(given.ctypes.data), None) == 1
    assert loaded.last_error() == "do_double: argument 1 (Y) is a null pointer"


def test_adjacent_buffers_do_not_overlap(library: Make) -> None:
    backing = aligned_empty((2048,), "float32")
    backing[:] = 1
    library("double").call("do_double", [backing[:1024], backing[1024:]])
    np.testing.assert_array_equal(backing[1024:], np.full(1024, 2, np.float32))


def test_of_many_buffers_outputs_lie_apart_or_over_their_inputs(
    tmp_path: Path, toolchain: Toolchain, function: Callable[..., Function]
) -> None:
    """Wherever they lie, the check by address says what a look at each pair does."""
    lengths = [16, 48, 32, 16, 32, 48, 16]
    tensors = [Tensor(name=f"T{n}", shape=(extent,), dtype="float32") for n, extent in
               enumerate(lengths)]  # fmt: skip
    inputs, overwritable = 4, (1, 2)
    many = replace(
        function("empty"),
        inputs=tuple(tensors[:inputs]),
        outputs=tuple(tensors[inputs:]),
        overwritable=overwritable,
    )
    path = tmp_path / "libmany.so"
    path.write_bytes(link("many", [many], toolchain=toolchain))
    entry = ctypes.CDLL(str(path)).do_empty
    backing = aligned_empty((1024,), "float32").ctypes.data
    generator, refused = np.random.default_rng(0), 0
    for _ in range(2000):
        places = generator.integers(0, generator.integers(4, 60), len(lengths)) * 16
        spans = [(place, place + extent) for place, extent in zip(places, lengths, strict=True)]
        overlaps = any(
            a[0] < b[1] and b[0] < a[1] and not (two in overwritable and a[0] == b[0])
            for one, a in enumerate(spans)
            for two, b in enumerate(spans)
            if one != two and one >= inputs
        )
        status = entry(*(ctypes.c_void_p(backing + 4 * int(place)) for place in places))
        assert status == 3 * overlaps, spans
        refused += overlaps
    assert 200 < refused < 1990


def test_kernel_failures_carry_the_kernels_text(library: Make) -> None:
    for threads in (1, 3):
        with pytest.raises(LibraryError, match=r"^ValueError: the last task gave up$") as caught:
            library("failing", threads=threads).call("do_failing", pair())
        assert caught.value.kind == "internal"
    with pytest.raises(LibraryError, match="without a text"):
        library("silent").call("do_silent", pair())


def test_a_library_tells_the_most_workspace_that_its_threads_held(library: Make) -> None:
    plain = library("double")
    plain.call("do_double", pair())
    assert plain.workspace_bytes() == 0
    loaded = library("workspace", name="held", threads=2)
    assert loaded.workspace_bytes() == 0
    loaded.call("do_workspace", pair())
    most = loaded.workspace_bytes()
    assert most == 16384
    for _ in range(3):  # a thread keeps what it had for its next call
        loaded.call("do_workspace", pair())
    assert loaded.workspace_bytes() == most


def test_no_memory_for_a_workspace_is_an_error_not_a_crash(library: Make) -> None:
    with pytest.raises(LibraryError, match="2305843009213693952 bytes") as caught:
        library("greedy").call("do_greedy", pair())
    assert caught.value.kind == "memory"


def test_missing_instruction_set_is_refused(library: Make) -> None:
    flags = Path("/proc/cpuinfo").read_text().split()
    missing = next(
        (
            name
            for name, flag in (("amx-tile", "amx_tile"), ("sse4a", "sse4a"))
            if flag not in flags
        ),
        None,
    )
    if missing is None or os.uname().machine != "x86_64":
        pytest.skip("this CPU has every feature the test could miss")
    loaded = library("double", isa=("sse2", missing))
    for _ in range(2):  # the answer is remembered, the refusal too
        with pytest.raises(LibraryError, match=f"lacks {missing}") as caught:
            loaded.call("do_double", pair())
        assert caught.value.kind == "isa"


def test_as_many_tasks_as_asked_for_or_as_threads(library: Make) -> None:
    loaded = library("tasks", threads=3)
    for asked, tasks in ((0, 3), (1, 1), (2, 2), (7, 7)):
        given, result = pair()
        given[0] = asked
        loaded.call("do_tasks", [given, result])
        np.testing.assert_array_equal(result[:tasks], np.full(tasks, tasks, np.float32))
        assert np.isnan(result[tasks:]).all()


def test_thread_count_can_be_set_and_given_back(library: Make) -> None:
    loaded = library("tasks", threads=3)
    for setting, tasks in ((1, 1), (6, 6), (0, 3)):
        given, result = pair()
        given[0] = 0
        loaded.set_num_threads(setting)
        loaded.call("do_tasks", [given, result])
        assert result[0] == tasks
    for wrong in (-1, 257):
        with pytest.raises(LibraryError, match="1 to 256") as caught:
            loaded.set_num_threads(wrong)
        assert caught.value.kind == "extent"


def test_eight_threads_at_once(library: Make) -> None:
    loaded = {entry: library(entry, threads=2) for entry in ("parallel", "workspace")}
    wrong: list[str] = []

    def hammer(seed: int) -> None:
        given, result = pair()
        for turn in range(200):
            entry = "parallel" if (turn + seed) % 2 else "workspace"
            given[:] = seed + turn
            loaded[entry].call(f"do_{entry}", [given, result])
            if not (result == 2 * given).all():
                wrong.append(f"{entry} in thread {seed}, turn {turn}")

    threads = [threading.Thread(target=hammer, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_a_forked_child_makes_its_own_pool(library: Make) -> None:
    loaded = library("parallel", threads=3)
    given, result = pair()
    loaded.call("do_parallel", [given, result])

    def child() -> None:
        for _ in range(50):
            result[:] = np.nan
            loaded.call("do_parallel", [given, result])
            assert (result == 2 * given).all()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(timeout=30)
    alive = process.is_alive()
    if alive:
        process.kill()
    assert (alive, process.exitcode) == (False, 0)
    loaded.call("do_parallel", [given, result])


def test_two_libraries_live_in_one_process(library: Make) -> None:
    first, second = (
        library("tasks", name="first", threads=2),
        library("tasks", name="second", threads=2),
    )
    first.set_num_threads(1)
    given, result = pair()
    given[0] = 0
    second.call("do_tasks", [given, result])
    assert result[0] == 2
    with pytest.raises(LibraryError):
        second.set_num_threads(-1)
    assert (first.last_error(), "threads" in second.last_error()) == ("", True)


def test_kernels_with_the_same_entry_name_share_a_library(
    tmp_path: Path, toolchain: Toolchain, function: Callable[..., Function]
) -> None:
    headers = {"tvm_abi.h": runtime_sources()["tvm_abi.h"]}
    kernels = []
    for factor in (3, 5):
        text = f"""#include "tvm_abi.h"
        __attribute__((visibility("default"))) int main_entry(void *s, const TunerAny *a, int32_t n, TunerAny *r) {{
          const float *in = ((TunerDLTensor *)a[0].value.v_ptr)->data;
          float *out = ((TunerDLTensor *)a[1].value.v_ptr)->data;
          for (int i = 0; i < 1024; ++i) out[i] = {factor} * in[i];
          (void)s, (void)n, (void)r;
          return 0;
        }}"""  # noqa: E501
        code = toolchain.compile("factor.c", text, headers).read_bytes()
        kernels.append(
            replace(
                function("double", symbol=f"times_{factor}"),
                object_code=code,
                tvm_symbol="main_entry",
            )
        )
    kernels.append(replace(kernels[0], symbol="times_3_again"))
    path = tmp_path / "libboth.so"
    path.write_bytes(link("both", kernels, toolchain=toolchain))
    loaded = Library(path)
    given, result = pair()
    for symbol, factor in (("times_3", 3), ("times_5", 5), ("times_3_again", 3)):
        loaded.call(symbol, [given, result])
        np.testing.assert_array_equal(result, factor * given)


def test_timing_counts_calls_and_gives_seconds(library: Make) -> None:
    samples = library("empty").time("do_empty", pair(), number=1000, repeat=5)
    assert len(samples) == 5
    assert all(0 < sample < 1e-4 for sample in samples)
    with pytest.raises(LibraryError, match="number >= 1"):
        library("double").time("do_double", pair(), number=0, repeat=1)


def test_arrays_of_another_kind_are_refused(library: Make) -> None:
    loaded = library("double")
    given, result = pair()
    with pytest.raises(ShapeError, match=r"X has shape \(512,\), expected \(1024,\)"):
        loaded.call("do_double", [given[:512], result])
    with pytest.raises(DTypeError, match="Y has dtype float64, expected float32"):
        loaded.call("do_double", [given, result.astype("float64")])
    with pytest.raises(ShapeError, match="takes 2 arrays, got 1"):
        loaded.call("do_double", [given])
    with pytest.raises(ShapeError, match="not C-contiguous"):
        loaded.call("do_double", [np.zeros(2048, np.float32)[::2], result])
    with pytest.raises(LibraryError, match="no function 'do_other'; it has do_double"):
        loaded.call("do_other", [given, result])


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "libother.so"
    path.write_bytes(b"not a library")
    with pytest.raises(LibraryError, match="cannot load"):
        Library(path)

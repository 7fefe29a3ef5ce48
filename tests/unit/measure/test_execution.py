"""A kernel run on a caller's arrays: what it computes comes back, what goes wrong is
named, nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.hostile_kernels import COUNT, PRELUDE, addition, compile_source
from tuner.errors import UsageError
from tuner.measure.assignment import Assignment, Lane, Placement, Request
from tuner.measure.execution import Execution, SharedOutputs, execution_from_document
from tuner.measure.outcome import Failed, FailureKind, Timed
from tuner.measure.runner import RunnerProcess
from tuner.workload.bounded import BoundedExtents
from tuner.workload.expression import Tensor, Within

Library = Callable[[str], str]
Array = np.ndarray[tuple[int, ...], np.dtype[Any]]
VECTORS = tuple(Tensor(name=name, shape=(COUNT,), dtype="float32") for name in "ABC")


@pytest.fixture
def arrays() -> dict[str, Array]:
    rng = np.random.default_rng(4)
    return {"A": rng.random(COUNT, np.float32), "B": rng.random(COUNT, np.float32)}


def execution(library: str, folder: Path, given: dict[str, Array]) -> Execution:
    np.savez(folder / "inputs.npz", allow_pickle=False, **given)
    return Execution(
        library=library,
        symbol="kernel",
        takes=VECTORS[:2],
        gives=VECTORS[2:],
        inputs=str(folder / "inputs.npz"),
        outputs=str(folder / "outputs.npz"),
        timeout_s=1.5,
    )


@pytest.mark.parametrize(("count", "rows"), [(2, 2), (0, 0), (5, 5), (-3, 0), (1 << 40, 5)])
def test_outputs_are_cut_to_their_extents(tmp_path: Path, count: int, rows: int) -> None:
    """Whatever a candidate leaves as a count."""
    tensors = (
        Tensor(name="boxes", shape=(5, 4), dtype="float32"),
        Tensor(name="boxes.extent", shape=(1,), dtype="int64"),
    )
    bounded = {"boxes": BoundedExtents(axes=(0,), extents="boxes.extent")}
    made = execution("x.so", tmp_path, {})
    again = execution_from_document(asdict(replace(made, gives=tensors, bounded=bounded)))
    assert again.bounded == bounded
    with SharedOutputs(again.gives) as outputs:
        outputs.arrays["boxes"][...] = np.arange(20).reshape(5, 4)
        outputs.arrays["boxes.extent"][...] = count
        outputs.write(again.outputs, again.bounded)
    with np.load(again.outputs, allow_pickle=False) as written:
        assert written.files == ["boxes"]
        np.testing.assert_array_equal(written["boxes"], np.arange(20).reshape(5, 4)[:rows])


def test_arrays_may_have_any_names(
    runner: RunnerProcess, library: Library, lane: Lane, tmp_path: Path, arrays: dict[str, Array]
) -> None:
    """As the tensors of a model's file have; `numpy.savez` would take none called `file`."""
    names = ("input:0", "encoder/x.1", "file")
    renamed = replace(
        execution(library("good"), tmp_path, {names[0]: arrays["A"], names[1]: arrays["B"]}),
        takes=tuple(replace(VECTORS[place], name=names[place]) for place in (0, 1)),
        gives=(replace(VECTORS[2], name=names[2]),),
    )
    assert runner.execute(Placement(lane=lane), renamed) is None
    with np.load(tmp_path / "outputs.npz", allow_pickle=False) as outputs:
        assert outputs.files == ["file"]
        np.testing.assert_array_equal(outputs["file"], arrays["A"] + arrays["B"])


@pytest.mark.parametrize("fill", [None, 1e30])
def test_the_outputs_are_those_of_the_given_arrays(
    runner: RunnerProcess,
    library: Library,
    lane: Lane,
    tmp_path: Path,
    arrays: dict[str, Array],
    fill: float | None,
) -> None:
    if fill is not None:
        arrays["A"][:] = fill
    assert (
        runner.execute(
            Assignment(workload=addition(), lane=lane), execution(library("good"), tmp_path, arrays)
        )
        is None
    )
    with np.load(tmp_path / "outputs.npz", allow_pickle=False) as outputs:
        np.testing.assert_array_equal(outputs["C"], arrays["A"] + arrays["B"])


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        ("endless", FailureKind.RUN_TIMEOUT),
        ("segfault", FailureKind.RUN_CRASH),
        ("exit", FailureKind.RUN_CRASH),
        ("greedy", FailureKind.OUT_OF_MEMORY),
        ("far_overrun", FailureKind.RUN_CRASH),
        ("verbose", FailureKind.RUN_CRASH),
    ],
)
def test_a_failing_kernel_is_named_in_time_and_leaves_no_outputs(
    runner: RunnerProcess,
    library: Library,
    lane: Lane,
    tmp_path: Path,
    arrays: dict[str, Array],
    behaviour: str,
    kind: FailureKind,
) -> None:
    failed = runner.execute(
        Assignment(workload=addition(), lane=lane), execution(library(behaviour), tmp_path, arrays)
    )
    assert failed is not None and failed.kind is kind, failed
    assert not (tmp_path / "outputs.npz").exists()


def test_other_arrays_are_refused(
    runner: RunnerProcess, library: Library, lane: Lane, tmp_path: Path, arrays: dict[str, Array]
) -> None:
    assignment = Assignment(workload=addition(), lane=lane)
    for given in (
        {"A": arrays["A"]},
        {**arrays, "B": arrays["B"][:-1]},
        {**arrays, "B": arrays["B"].astype(np.float64)},
    ):
        with pytest.raises(UsageError):
            runner.execute(assignment, execution(library("good"), tmp_path, given))
    (tmp_path / "inputs.npz").write_bytes(b"\x80\x04.")
    with pytest.raises(UsageError):
        runner.execute(
            assignment,
            Execution(
                library=library("good"),
                symbol="kernel",
                takes=VECTORS[:2],
                gives=VECTORS[2:],
                inputs=str(tmp_path / "inputs.npz"),
                outputs="/nowhere",
            ),
        )


def test_values_that_the_function_refuses_are_no_crash(
    runner: RunnerProcess, lane: Lane, tmp_path: Path
) -> None:
    places = Tensor(name="J", shape=(4,), dtype="int32", fact=Within(start=0, stop=4))
    takes = (places, Tensor(name="X", shape=(4,), dtype="float32"))
    body = "for (int i = 0; i < COUNT; ++i) c[i] = b[((int32_t *)a)[i % 4]]; return 0; }\n"
    library = str(compile_source("gather", PRELUDE % COUNT + body, tmp_path, inputs=takes))

    def run(indices: list[int]) -> Failed | None:
        given = {"J": np.array(indices, np.int32), "X": np.arange(4, dtype=np.float32)}
        made = replace(execution(library, tmp_path, given), takes=takes)
        return runner.execute(Placement(lane=lane), made)

    with pytest.raises(UsageError, match=r"^kernel: J\[2\] is 4; it must be from 0 to 3$"):
        run([3, 0, 4, 1])
    assert not (tmp_path / "outputs.npz").exists()
    assert run([3, 0, 2, 1]) is None
    with np.load(tmp_path / "outputs.npz", allow_pickle=False) as outputs:
        assert outputs["C"][:5].tolist() == [3, 0, 2, 1, 3]


def test_measuring_goes_on_after_a_run(
    runner: RunnerProcess,
    library: Library,
    lane: Lane,
    tmp_path: Path,
    arrays: dict[str, Array],
    request_for: Callable[..., Request],
) -> None:
    assignment = Assignment(workload=addition(), lane=lane)
    assert runner.execute(assignment, execution(library("good"), tmp_path, arrays)) is None
    runner.prepare(assignment)
    assert isinstance(runner.measure(request_for("good")), Timed)

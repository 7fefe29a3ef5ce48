"""Branches, loops and scans: held against ONNX's evaluator, and the executor's C of each."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.support.model_kernels import compiled
from tests.support.model_libraries import exported
from tests.support.onnx_values import assert_computes
from tests.support.targets import host_target
from tests.unit.models.control_cases import (
    BOOL,
    CASES,
    FLOAT,
    INT64,
    Made,
    appended,
    body,
    constants_or_inputs,
    counting,
    floats,
    growing,
    known_times,
    model,
    n,
    put_in_front,
    until_small,
    value,
    written_and_copied,
    written_elements,
    written_rows,
)
from tuner.models.errors import ModelRefused
from tuner.models.executors.confined_calls import ConfinedCalls
from tuner.models.executors.cpu_executor import CpuExecutor
from tuner.models.graph import Graph, check_graph
from tuner.models.graph_archive import packed, unpacked
from tuner.models.library.memory import plan_memory
from tuner.models.nodes import Branch, Scan, every_node
from tuner.models.reading import read_graph
from tuner.models.reference.evaluation import evaluate_graph
from tuner.models.reference.onnx_evaluation import evaluate
from tuner.models.tuning.shares import profile
from tuner.models.workloads import workloads_of
from tuner.workload.expression import Expression


def graph_of(made: Any) -> Graph:
    onnx.checker.check_model(made)
    return unpacked(packed(read_graph(made.SerializeToString(), {})))


@pytest.mark.parametrize("case", list(CASES))
def test_the_graph_computes_what_the_file_says(case: str) -> None:
    made, feeds = CASES[case]()
    assert_computes(graph_of(made), made, feeds)


@pytest.mark.parametrize("case", ["layers_or_scores", "constants_or_inputs", "until_small",
                                  "known_times", "nested"])  # fmt: skip
def test_a_library_computes_what_the_file_says(case: str, tmp_path: Path) -> None:
    made, feeds = CASES[case]()
    graph = graph_of(made)
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    function = getattr(exported(graph, kernels, tmp_path / "out", case), f"run_{case}")
    for feed in [*feeds, *feeds]:
        results = function(*(np.atleast_1d(array) for array in feed.values()))
        results = results if isinstance(results, tuple) else (results,)
        for got, right in zip(results, evaluate(made, list(feed.values())), strict=True):
            np.testing.assert_allclose(got.reshape(np.shape(right)), right, rtol=1e-4, atol=1e-5)


def test_kernels_of_the_other_side_have_no_share() -> None:
    made, feeds = constants_or_inputs()
    graph = graph_of(made)
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    cores = sorted(os.sched_getaffinity(0))[:1]
    names = []
    for feed in feeds:
        inputs = [np.atleast_1d(array) for array in feed.values()]
        executor = CpuExecutor(ConfinedCalls(cores))
        shares = profile(graph, kernels, host_target(), 1, inputs, executor)
        names.append([(share.workload.expression.name, share.calls) for share in shares])
    assert names == [[("exp", 1)], [("neg", 1)]]


def mismatched() -> Any:
    """The other side multiplies shapes that do not fit."""
    then = body([n("Exp", ["x"], ["a"])], [], [value("a")])
    other = body([n("MatMul", ["x", "m"], ["b"])], [], [value("b")])
    nodes = [n("If", ["choice"], ["y"], then_branch=then, else_branch=other)]
    feed = {"x": floats(2, 3), "choice": np.array(True)}
    made = model(nodes, feed, [value("y", FLOAT, [2, 3])], m=floats(3, 3))
    for shaped in (made.graph.input[0], made.graph.output[0]):
        shaped.type.tensor_type.shape.dim[1].dim_param = "width"
    return made


def test_a_side_that_cannot_be_read_fails_when_it_is_chosen(tmp_path: Path) -> None:
    made, x = mismatched(), floats(2, 4)
    graph = unpacked(packed(read_graph(made.SerializeToString(), {"width": 4})))
    assert ["MatMul" in refusal for refusal in graph.refusals] == [True]
    (name,) = graph.outputs
    np.testing.assert_allclose(evaluate_graph(graph, [x, np.array(True)])[name], np.exp(x), 1e-6)
    with pytest.raises(ModelRefused, match="MatMul"):
        evaluate_graph(graph, [x, np.array(False)])
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    module = exported(graph, kernels, tmp_path / "out", "either")
    function = module.run_either
    np.testing.assert_allclose(function(x, np.array([True])), np.exp(x), 1e-5)
    with pytest.raises(module.loader.LibraryError, match="MatMul"):
        function(x, np.array([False]))
    np.testing.assert_allclose(function(x, np.array([True])), np.exp(x), 1e-5)


def test_a_side_may_name_what_it_sees_outside() -> None:
    x, outer = floats(2, 3), value("x", FLOAT, [2, 3])
    then = body([n("Neg", ["x"], ["a"])], [outer], [value("a")])
    other = body([n("Exp", ["x"], ["b"])], [outer], [value("b")])
    nodes = [n("If", ["choice"], ["y"], then_branch=then, else_branch=other)]
    made = model(nodes, {"x": x, "choice": np.array(True)}, [value("y", FLOAT, [2, 3])])
    graph = read_graph(made.SerializeToString(), {})
    for choice, right in ((True, -x), (False, np.exp(x))):
        tensors = evaluate_graph(graph, [x, np.array([choice])])
        np.testing.assert_allclose(tensors[graph.outputs[0]], right, rtol=1e-6)
    then.input.append(value("other", FLOAT, [2, 3]))
    nodes = [n("If", ["choice"], ["y"], then_branch=then, else_branch=other)]
    made = model(nodes, {"x": x, "choice": np.array(True)}, [value("y", FLOAT, [2, 3])])
    (refusal,) = read_graph(made.SerializeToString(), {}).refusals
    assert "gives 0 values to a graph with 1 inputs" in refusal


def test_what_no_iteration_changes_is_computed_before_them() -> None:
    step = body(
        [n("MatMul", ["m", "m"], ["mm"]), n("MatMul", ["s", "mm"], ["t"]),
         n("Identity", ["c"], ["going"])],
        [value("i", INT64, []), value("c", BOOL, []), value("s", FLOAT, [2, 3])],
        [value("going", BOOL, []), value("t")],
    )  # fmt: skip
    feed = {"x": floats(2, 3), "m": floats(3, 3)}
    nodes = [n("Loop", ["five", "", "x"], ["y"], body=step)]
    graph = graph_of(model(nodes, feed, [value("y", FLOAT, [2, 3])], five=np.array(5)))
    first, scan = graph.nodes
    assert isinstance(first, Expression) and isinstance(scan, Scan) and scan.count == 5
    assert len(scan.body) == 1


def test_iterations_and_sides_share_memory() -> None:
    """Chains of ten products need the memory of two, wherever they stand."""
    chain = [n("MatMul", [f"v{k}", "m"], [f"v{k + 1}"]) for k in range(10)]
    feed = {"v0": floats(64, 64), "choice": np.array(True)}
    plain = graph_of(model(chain, feed, [value("v10", FLOAT, [64, 64])], m=floats(64, 64)))
    side = body(chain, [], [value("v10")])
    nodes = [n("If", ["choice"], ["y"], then_branch=side, else_branch=side)]
    chosen = graph_of(model(nodes, feed, [value("y", FLOAT, [64, 64])], m=floats(64, 64)))
    assert [type(node) for node in chosen.nodes] == [Branch]
    assert plan_memory(chosen).arena_bytes == plan_memory(plain).arena_bytes == 2 * 64 * 64 * 4


@pytest.mark.parametrize("rows", [5, 100])
def test_a_loop_that_counts_is_one_scan(rows: int) -> None:
    made, _ = counting()
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = rows
    made.graph.output[2].type.tensor_type.shape.dim[0].dim_value = rows
    (scan,) = [node for node in graph_of(made).nodes if isinstance(node, Scan)]
    assert (scan.count, scan.condition) == (rows, None)


def test_what_counts_in_a_loop_is_no_state_of_it() -> None:
    made, _ = written_rows()
    (step,) = [a.g for a in made.graph.node[0].attribute if a.name == "body"]
    step.output[0].name = "inside"
    (scan,) = [node for node in graph_of(made).nodes if isinstance(node, Scan)]
    assert (scan.count, scan.condition, len(scan.states)) == (70, None, 2)


def scan_of(made: Made) -> Scan:
    (scan,) = [node for node in graph_of(made[0]).nodes if isinstance(node, Scan)]
    return scan


def test_what_nothing_else_reads_is_written_where_it_lies() -> None:
    """A slice in each iteration, no copy of the tensor; the condition may end them."""
    scan = scan_of(written_rows())
    (window,) = scan.written.values()
    (state,) = [state for state in scan.states if state.tensor.name == window.tensor]
    assert state.after == window.tensor and (window.start, window.step) == (0, 1)
    assert scan.condition is not None
    assert all(node.tensor(name).nbytes < 70 * 12 for node in scan.body for name in node.outputs)


def test_what_is_read_besides_is_copied() -> None:
    scan = scan_of(written_elements())
    (window,) = scan.written.values()
    assert (window.start, window.step) == (69, -1)
    assert [state.after == state.tensor.name for state in scan.states] == [True, False]


def test_copies_do_not_hide_what_is_written() -> None:
    """One state is left: two become the same, and nothing reads the third."""
    scan = scan_of(written_and_copied())
    (window,), (state,) = scan.written.values(), scan.states
    assert state.tensor.name == state.after == window.tensor
    assert all(node.tensor(name).nbytes <= 2 * 4 for node in scan.body for name in node.outputs)


def test_zero_is_added_where_it_may_change_a_sign() -> None:
    """A row of x may have -0, to which the copy's 0 adds up to 0."""
    made, feeds = written_and_copied("Identity")
    assert not scan_of((made, feeds)).written
    feeds[0]["x"][:] = -0.0
    graph = graph_of(made)
    tensors = evaluate_graph(graph, [feeds[0]["x"]])
    results = [np.signbit(tensors[name].reshape(70, 2)).any(1) for name in graph.outputs]
    rows = np.arange(70)
    np.testing.assert_array_equal(results, [rows == 68, rows < 0])


def test_tensors_that_only_grow_are_results_of_a_scan() -> None:
    scan = scan_of(put_in_front())
    assert (scan.count, len(scan.states), len(scan.sequences)) == (70, 1, 2)
    scan = scan_of(appended())
    assert (scan.count, len(scan.sequences), scan.condition is None) == (70, 3, False)


def test_a_tensor_that_grows_and_is_read_is_refused_in_long_loops() -> None:
    made, _ = growing()
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(65), "three"))
    reason = r"operator Loop \('y'\) has 65 iterations, and a state .* up to 64, .* by Concat"
    with pytest.raises(ModelRefused, match=reason):
        read_graph(made.SerializeToString(), {})


def test_a_loop_of_constants_is_a_constant() -> None:
    step = body(
        [n("Mul", ["s", "two"], ["t"]), n("Less", ["t", "limit"], ["going"])],
        [value("i", INT64, []), value("c", BOOL, []), value("s", FLOAT, [])],
        [value("going", BOOL, []), value("t")],
    )
    nodes = [n("Loop", ["", "yes", "one"], ["power"], body=step), n("Mul", ["x", "power"], ["y"])]
    constants: dict[str, Any] = {
        "two": np.float32(2),
        "limit": np.float32(50),
        "one": np.float32(1),
    }
    made = model(nodes, {"x": floats(3)}, [value("y", FLOAT, [3])], yes=np.array(True), **constants)
    graph = graph_of(made)
    assert not any(isinstance(node, Scan) for node in graph.nodes)
    (right,) = evaluate(made, [floats(3)])
    np.testing.assert_array_equal(evaluate_graph(graph, [floats(3)])[graph.outputs[0]], right)
    np.testing.assert_array_equal(right, floats(3) * 64)


def times_of_run_time(index: str) -> Any:
    """Iterations whose number is an input, each of which reads a tensor of 7 rows."""
    made, _ = known_times()
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(0), "first"))
    made.graph.input.append(value("seven", INT64, []))
    for output in made.graph.output[2:]:
        output.type.tensor_type.shape.dim[0].dim_param = "n"
    (step,) = [a.g for a in made.graph.node[0].attribute if a.name == "body"]
    (gather,) = [node for node in step.node if node.op_type == "Gather"]
    gather.input[1] = index
    return made


def test_results_of_iterations_that_are_counted_at_run_time_are_refused() -> None:
    content = times_of_run_time("first").SerializeToString()
    with pytest.raises(ModelRefused, match=r"operator Loop \('a1'\) stacks .* known at import"):
        read_graph(content, {})


def test_a_tensor_that_iterations_read_one_by_one_bounds_their_number() -> None:
    made = times_of_run_time("i")
    feed = {"a0": floats(3), "b0": floats(3, seed=1)}
    graph = graph_of(made)
    assert {*graph.bounded} == {"all", "numbers"} and scan_of((made, [])).count == 7
    assert_computes(graph, made, [{**feed, "seven": np.array(times)} for times in (1, 3, 7)])


def test_graphs_with_unsound_control_flow_are_refused() -> None:
    made, _ = until_small()
    graph = graph_of(made)
    (scan,) = [node for node in graph.nodes if isinstance(node, Scan)]

    def changed(**changes: Any) -> Graph:
        nodes = tuple(
            dataclasses.replace(scan, **changes) if node is scan else node for node in graph.nodes
        )
        return dataclasses.replace(graph, nodes=nodes)

    with pytest.raises(ModelRefused, match="no state of it"):
        check_graph(changed(condition=scan.states[-1].tensor.name))
    with pytest.raises(ModelRefused, match="written twice"):
        check_graph(changed(body=(*scan.body, scan.body[0])))
    state = dataclasses.replace(scan.states[-1], after=scan.states[2].after)
    with pytest.raises(ModelRefused, match="does not become"):
        check_graph(changed(states=(*scan.states[:-1], state)))
    graph = graph_of(written_rows()[0])
    (scan,) = [node for node in graph.nodes if isinstance(node, Scan)]
    (window,) = scan.written.values()
    others = tuple(
        dataclasses.replace(state, after=scan.states[2].after)
        if state.tensor.name == window.tensor else state for state in scan.states
    )  # fmt: skip
    with pytest.raises(ModelRefused, match="writes no slices"):
        check_graph(changed(states=others))
    (node, *rest) = scan.body
    assert isinstance(node, Expression)
    whole = scan.tensor(window.tensor)
    node = dataclasses.replace(node, inputs=(*node.inputs, whole))
    with pytest.raises(ModelRefused, match="reads the state"):
        check_graph(changed(body=(node, *rest)))
    assert len(list(every_node(graph.nodes))) > len(graph.nodes)

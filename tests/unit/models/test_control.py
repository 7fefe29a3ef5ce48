"""Branches, loops and scans: held against ONNX's evaluator, and the executor's C of each."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.model_kernels import compiled
from tests.support.model_libraries import exported
from tests.support.targets import host_target
from tuner.models.confined_calls import ConfinedCalls
from tuner.models.cpu_executor import CpuExecutor
from tuner.models.errors import ModelRefused
from tuner.models.evaluation import evaluate_graph
from tuner.models.graph import Graph, check_graph
from tuner.models.graph_archive import packed, unpacked
from tuner.models.memory import plan_memory
from tuner.models.nodes import Branch, Scan, every_node
from tuner.models.onnx_evaluation import evaluate
from tuner.models.reading import read_graph
from tuner.models.shares import profile
from tuner.models.workloads import workloads_of
from tuner.workload.expression import Expression

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Array = np.ndarray[Any, np.dtype[Any]]
Feed = dict[str, Array]
Made = tuple[Any, list[Feed]]  # a model, and inputs for several calls
n = helper.make_node


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def value(name: str, kind: int = FLOAT, shape: Sequence[int] | None = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def body(nodes: list[Any], inputs: list[Any], outputs: list[Any], **constants: Any) -> Any:
    arrays = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    return helper.make_graph(nodes, "body", inputs, outputs, arrays)


def model(
    nodes: list[Any], feed: Feed, outputs: list[Any], opset: int = 18, **constants: Any
) -> Any:
    inputs = [
        value(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feed.items()
    ]
    graph = body(nodes, inputs, outputs, **constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def layers_or_scores() -> Made:
    """One side is an LSTM, the other a product; both see what is outside."""
    x = floats(4, 2, 3)
    then = body(
        [n("LSTM", ["x", "w", "r"], ["ys"], hidden_size=5), n("Squeeze", ["ys", "axis"], ["a"])],
        [], [value("a")],
    )  # fmt: skip
    other = body([n("MatMul", ["x", "m"], ["p"]), n("Tanh", ["p"], ["b"])], [], [value("b")])
    nodes = [
        n("If", ["choice"], ["y"], then_branch=then, else_branch=other),
        n("Relu", ["y"], ["z"]),
    ]
    constants: dict[str, Any] = {
        "w": floats(1, 20, 3), "r": floats(1, 20, 5), "m": floats(3, 5), "axis": np.array([1]),
    }  # fmt: skip
    made = model(
        nodes, {"x": x, "choice": np.array(True)}, [value("z", FLOAT, [4, 2, 5])], **constants
    )
    return made, [{"x": x, "choice": np.array(side)} for side in (True, False)]


def constants_or_inputs() -> Made:
    """Results that no node of their side computes are copied."""
    x = floats(2, 3)
    then = body([n("Exp", ["x"], ["a"]), n("Identity", ["x"], ["i"]), n("Identity", ["a"], ["j"])],
        [], [value("a"), value("i"), value("j")],
    )  # fmt: skip
    other = body([n("Identity", ["c"], ["k"]), n("Neg", ["x"], ["b"]), n("Identity", ["x"], ["l"])],
        [], [value("k"), value("b"), value("l")],
    )  # fmt: skip
    nodes = [n("If", ["choice"], ["p", "q", "r"], then_branch=then, else_branch=other)]
    made = model(
        nodes, {"x": x, "choice": np.array(True)}, [value(k, FLOAT, [2, 3]) for k in "pqr"],
        c=floats(2, 3, seed=5),
    )  # fmt: skip
    return made, [{"x": x, "choice": np.array(side)} for side in (True, False)]


def until_small() -> Made:
    """A number of iterations that the values decide, and a limit of them."""
    step = body(
        [
            n("MatMul", ["s", "m"], ["after"]),
            n("ReduceMax", ["after"], ["top"], keepdims=0),
            n("Greater", ["top", "least"], ["going"]),
            n("Cast", ["i"], ["f"], to=FLOAT),
            n("Add", ["total", "f"], ["sum"]),
        ],
        [value("i", INT64, []), value("c", BOOL, []), value("s", FLOAT, [2, 3]),
         value("total", FLOAT, [])],
        [value("going", BOOL, []), value("after"), value("sum")],
    )  # fmt: skip
    nodes = [n("Loop", ["trips", "", "x", "zero"], ["y", "total"], body=step)]
    feed = {"x": np.abs(floats(2, 3)), "trips": np.array(9)}
    made = model(
        nodes, feed, [value("y", FLOAT, [2, 3]), value("total", FLOAT, [])],
        m=np.eye(3, dtype=np.float32)[::-1] * 0.5, least=np.float32(0.1), zero=np.float32(0),
    )  # fmt: skip
    trips = [np.array(count) for count in (9, 2, 0)]
    return made, [{**feed, "trips": count} for count in trips]


def known_times() -> Made:
    """A loop with its number known, results of each iteration, and a swap of states."""
    step = body(
        [
            n("Identity", ["c"], ["going"]),
            n("Gather", ["rows", "i"], ["row"]),
            n("Add", ["a", "row"], ["sum"]),
            n("Mul", ["sum", "b"], ["product"]),
        ],
        [value("i", INT64, []), value("c", BOOL, []), value("a", FLOAT, [3]),
         value("b", FLOAT, [3])],
        [value("going", BOOL, []), value("b"), value("sum"), value("product"), value("i", INT64)],
    )  # fmt: skip
    feed = {"a0": floats(3), "b0": floats(3, seed=1)}
    outputs = [value("a1", FLOAT, [3]), value("b1", FLOAT, [3]), value("all", FLOAT, [7, 3]),
               value("numbers", INT64, [7])]  # fmt: skip
    nodes = [
        n("Loop", ["seven", "", "a0", "b0"], ["a1", "b1", "all", "numbers"], body=step),
    ]
    return model(nodes, feed, outputs, seven=np.array(7), rows=floats(7, 3, seed=2)), [feed]


def growing() -> Made:
    """A state that grows with each iteration has nodes for each."""
    step = body(
        [n("Identity", ["c"], ["going"]), n("Concat", ["s", "x"], ["more"], axis=0)],
        [value("i", INT64, []), value("c", BOOL, []), value("s", FLOAT, None)],
        [value("going", BOOL, []), value("more", FLOAT, None)],
    )
    feed = {"x": floats(1, 4)}
    nodes = [n("Loop", ["three", "", "x"], ["y"], body=step)]
    return model(nodes, feed, [value("y", FLOAT, [4, 4])], three=np.array(3)), [feed]


def both_ways() -> Made:
    """Inputs along another axis and from the end on; results in another place."""
    step = body(
        [n("Mul", ["p", "q"], ["pq"]), n("Add", ["s", "pq"], ["t"]), n("Exp", ["t"], ["e"])],
        [value("s", FLOAT, [4]), value("p", FLOAT, [4]), value("q", FLOAT, [4])],
        [value("t"), value("e"), value("pq")],
    )
    feed = {"s0": floats(4), "x": floats(4, 6) * 0.3, "y": floats(6, 4, seed=3) * 0.3}
    nodes = [
        n("Scan", ["s0", "x", "y"], ["s1", "es", "ps"], body=step, num_scan_inputs=2,
          scan_input_axes=[-1, 0], scan_input_directions=[0, 1], scan_output_axes=[1, 0],
          scan_output_directions=[1, 0]),
    ]  # fmt: skip
    outputs = [value("s1", FLOAT, [4]), value("es", FLOAT, [4, 6]), value("ps", FLOAT, [6, 4])]
    return model(nodes, feed, outputs), [feed]


def nested() -> Made:
    """A scan inside of a scan, whose body chooses a side."""
    then = body([n("Tanh", ["u"], ["eu"])], [], [value("eu")])
    other = body([n("Sin", ["u"], ["su"]), n("Neg", ["su"], ["uu"])], [], [value("uu")])
    inner = body(
        [
            n("Add", ["s", "v"], ["u"]),
            n("ReduceSum", ["v"], ["total"], keepdims=0),
            n("Less", ["total", "zero"], ["small"]),
            n("If", ["small"], ["t"], then_branch=then, else_branch=other),
        ],
        [value("s", FLOAT, [16]), value("v", FLOAT, [16])],
        [value("t", FLOAT, [16]), value("u", FLOAT, [16])],
    )
    outer = body(
        [n("Scan", ["h", "m"], ["g", "rows"], body=inner, num_scan_inputs=1)],
        [value("h", FLOAT, [16]), value("m", FLOAT, [3, 16])],
        [value("g", FLOAT, [16]), value("rows", FLOAT, [3, 16])],
    )
    feed = {"h0": floats(16) * 0.1, "x": floats(5, 3, 16) * 0.1}
    nodes = [n("Scan", ["h0", "x"], ["h1", "all"], body=outer, num_scan_inputs=1)]
    outputs = [value("h1", FLOAT, [16]), value("all", FLOAT, [5, 3, 16])]
    return model(nodes, feed, outputs, zero=np.float32(0)), [feed]


def counting() -> Made:
    """A loop whose condition counts, as `tf.while_loop` is written, with results of each
    iteration: its number is known."""
    step = body(
        [
            n("Gather", ["x", "k"], ["row"]),
            n("Add", ["s", "row"], ["sum"]),
            n("Tanh", ["sum"], ["t"]),
            n("Add", ["k", "step"], ["following"]),
            n("Cast", ["following"], ["number"], to=FLOAT),
            n("Cast", ["length"], ["most"], to=FLOAT),
            n("Less", ["number", "most"], ["going"]),
        ],
        [value("i", INT64, []), value("c", BOOL, []), value("k", INT64, []),
         value("s", FLOAT, [3]), value("length", INT64, [])],
        [value("going", BOOL, []), value("following"), value("t"), value("length"), value("t")],
    )  # fmt: skip
    feed = {"x": floats(100, 3)}
    nodes = [
        n("Shape", ["x"], ["rows"], end=1),
        n("Squeeze", ["rows"], ["length0"]),
        n("Loop", ["", "yes", "k0", "s0", "length0"], ["k1", "s1", "l1", "all"], body=step),
    ]
    outputs = [value("k1", INT64, []), value("s1", FLOAT, [3]), value("all", FLOAT, [100, 3])]
    return model(
        nodes, feed, outputs, yes=np.array(True), k0=np.array(0), step=np.array(1),
        s0=np.zeros(3, np.float32),
    ), [feed]  # fmt: skip


def written_rows(rows: int = 70) -> Made:
    """A loop that writes a slice at a place that it counts, as converters write `y[k] = row`:
    the counter alone decides how long the slice is. Another condition may end it earlier."""
    step = body(
        [
            n("MatMul", ["h", "m"], ["product"]),
            n("Add", ["product", "x"], ["sum"]),
            n("Tanh", ["sum"], ["t"]),
            n("Add", ["k", "one"], ["following"]),
            n("Shape", ["s"], ["extents"], end=1),
            n("Min", ["extents", "following"], ["end"]),
            n("Slice", ["s", "k", "end", "zero", "one"], ["part"]),
            n("Shape", ["part"], ["like"]),
            n("Expand", ["t", "like"], ["row"]),
            n("Squeeze", ["k"], ["first"]),
            n("Squeeze", ["end"], ["last"]),
            n("Range", ["first", "last", "unit"], ["range"]),
            n("Unsqueeze", ["range", "one"], ["places"]),
            n("ScatterND", ["s", "places", "row"], ["written"]),
            n("Less", ["last", "length"], ["inside"]),
            n("ReduceMax", ["t"], ["top"], keepdims=0),
            n("Less", ["top", "most"], ["below"]),
            n("And", ["inside", "below"], ["going"]),
        ],
        [value("i", INT64, []), value("c", BOOL, []), value("k", INT64, [1]),
         value("h", FLOAT, [1, 3]), value("s", FLOAT, [rows, 3])],
        [value("going", BOOL, []), value("following"), value("t"), value("written")],
    )  # fmt: skip
    x = floats(1, 3) * 0.1
    feeds: list[Feed] = [{"x": x, "most": np.array(m, np.float32)} for m in (2.0, 0.2)]
    nodes = [n("Loop", ["trips", "yes", "zero", "h0", "s0"], ["k1", "h1", "s1"], body=step)]
    outputs = [value("k1", INT64, [1]), value("h1", FLOAT, [1, 3]), value("s1", FLOAT, [rows, 3])]
    return model(
        nodes, feeds[0], outputs, trips=np.array(1024), yes=np.array(True), zero=np.array([0]),
        one=np.array([1]), unit=np.array(1), length=np.array(rows), m=np.eye(3, dtype=np.float32),
        h0=np.zeros((1, 3), np.float32), s0=np.zeros((rows, 3), np.float32),
    ), feeds  # fmt: skip


CASES: Mapping[str, Callable[[], Made]] = {
    made.__name__: made
    for made in (
        layers_or_scores, constants_or_inputs, until_small, known_times, growing, both_ways,
        nested, counting, written_rows,
    )
}  # fmt: skip


def graph_of(made: Any) -> Graph:
    onnx.checker.check_model(made)
    return unpacked(packed(read_graph(made.SerializeToString(), {})))


@pytest.mark.parametrize("case", list(CASES))
def test_the_graph_computes_what_the_file_says(case: str) -> None:
    made, feeds = CASES[case]()
    graph = graph_of(made)
    for feed in feeds:
        tensors = evaluate_graph(graph, list(feed.values()))
        expected = evaluate(made, list(feed.values()))
        for name, right in zip(graph.outputs, expected, strict=True):
            got = tensors[name].reshape(np.shape(right))
            np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)


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


def test_results_of_iterations_that_are_counted_at_run_time_are_refused() -> None:
    made, _ = known_times()
    trips = value("seven", INT64, [])
    del made.graph.initializer[0]
    made.graph.input.append(trips)
    with pytest.raises(ModelRefused, match=r"operator Loop \('a1'\) stacks .* known at import"):
        read_graph(made.SerializeToString(), {})


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
    assert len(list(every_node(graph.nodes))) > len(graph.nodes)

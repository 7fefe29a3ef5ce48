"""Models with branches, loops and scans, and inputs for calls of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Array = np.ndarray[Any, np.dtype[Any]]
Feed = dict[str, Array]
Made = tuple[Any, list[Feed]]  # a model, and inputs for several calls
n = helper.make_node


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def value(name: str, kind: int = FLOAT, shape: Sequence[int | str] | None = None) -> Any:
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


def parts_of_rows() -> Made:
    """The rows before or behind a place, or all: of how many, values decide."""
    then = body([n("Slice", ["x", "zero", "place"], ["a"])], [], [value("a")])
    inner = body([n("Slice", ["x", "place", "end"], ["b"])], [], [value("b")])
    all_rows = body([n("Neg", ["x"], ["c"])], [], [value("c")])
    other = body(
        [n("If", ["second"], ["d"], then_branch=inner, else_branch=all_rows)], [], [value("d")]
    )
    nodes = [
        n("If", ["first"], ["rows"], then_branch=then, else_branch=other),
        n("Exp", ["rows"], ["y"]),
        n("ReduceMax", ["rows"], ["top"], axes=[0], keepdims=0),
    ]
    x = floats(5, 3)
    feeds: list[Feed] = [
        {"x": x, "place": np.array([place]), "first": np.array(a), "second": np.array(b)}
        for place, a, b in ((2, True, True), (3, False, True), (1, False, False))
    ]
    outputs = [value("y", FLOAT, ["rows", 3]), value("top", FLOAT, [3])]
    constants: dict[str, Any] = {"zero": np.array([0]), "end": np.array([5])}
    return model(nodes, feeds[0], outputs, 13, **constants), feeds


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
    """A state that grows with each iteration, and is read, has nodes for each."""
    step = body(
        [
            n("Identity", ["c"], ["going"]),
            n("ReduceSum", ["s"], ["total"], keepdims=0),
            n("Add", ["x", "total"], ["row"]),
            n("Concat", ["s", "row"], ["more"], axis=0),
        ],
        [value("i", INT64, []), value("c", BOOL, []), value("s", FLOAT, None)],
        [value("going", BOOL, []), value("more", FLOAT, None)],
    )
    feed = {"x": floats(1, 4)}
    nodes = [n("Loop", ["three", "", "x"], ["y"], body=step)]
    return model(nodes, feed, [value("y", FLOAT, [4, 4])], three=np.array(3)), [feed]


def appended(rows: int = 70) -> Made:
    """States that iterations only append to, behind or in front, whatever they begin with.
    A condition may end them earlier."""
    step = body(
        [
            n("MatMul", ["h", "m"], ["product"]),
            n("Add", ["product", "x"], ["sum"]),
            n("Tanh", ["sum"], ["t"]),
            n("Neg", ["t"], ["minus"]),
            n("Unsqueeze", ["t", "one"], ["column"]),
            n("Concat", ["a", "t", "minus"], ["more"], axis=0),
            n("Concat", ["b", "column"], ["wider"], axis=-2),
            n("ReduceMax", ["t"], ["top"], keepdims=0),
            n("Less", ["top", "most"], ["going"]),
        ],
        [value("i", INT64, []), value("c", BOOL, []), value("a", FLOAT, None),
         value("h", FLOAT, [1, 3]), value("b", FLOAT, None)],
        [value("going", BOOL, []), value("more"), value("t"), value("wider"), value("t")],
    )  # fmt: skip
    x = floats(1, 3) * 0.1
    feeds: list[Feed] = [{"x": x, "most": np.array(m, np.float32)} for m in (2.0, 0.2)]
    nodes = [n("Loop", ["trips", "yes", "a0", "h0", "b0"], ["a1", "h1", "b1", "all"], body=step)]
    outputs = [value("a1", FLOAT, ["a", 3]), value("h1", FLOAT, [1, 3]),
               value("b1", FLOAT, [1, "b", 3]), value("all", FLOAT, ["n", 1, 3])]  # fmt: skip
    return model(
        nodes, feeds[0], outputs, trips=np.array(rows), yes=np.array(True), one=np.array([1]),
        m=np.eye(3, dtype=np.float32), h0=np.zeros((1, 3), np.float32),
        a0=np.zeros((0, 3), np.float32), b0=floats(1, 2, 3, seed=4),
    ), feeds  # fmt: skip


def put_in_front(rows: int = 70) -> Made:
    """Iterations whose number is known, in another order than their results."""
    step = body(
        [
            n("Identity", ["c"], ["going"]),
            n("Gather", ["x", "i"], ["row"]),
            n("Add", ["s", "row"], ["sum"]),
            n("Concat", ["sum", "front"], ["longer"], axis=0),
            n("Concat", ["behind", "sum"], ["more"], axis=0),
        ],
        [value("i", INT64, []), value("c", BOOL, []), value("front", FLOAT, None),
         value("s", FLOAT, [4]), value("behind", FLOAT, None)],
        [value("going", BOOL, []), value("longer"), value("sum"), value("more")],
    )  # fmt: skip
    feed = {"x": floats(rows, 4) * 0.1, "first": floats(3, seed=1)}
    nodes = [n("Loop", ["trips", "", "first", "s0", "first"], ["f", "s1", "b"], body=step)]
    outputs = [value("f", FLOAT, [4 * rows + 3]), value("s1", FLOAT, [4]),
               value("b", FLOAT, [4 * rows + 3])]  # fmt: skip
    return model(
        nodes, feed, outputs, trips=np.array(rows), s0=np.zeros(4, np.float32)
    ), [feed]  # fmt: skip


def written_elements(rows: int = 70) -> Made:
    """Two states written at counted places, the second read besides, by elements and from the
    end on."""
    step = body(
        [
            n("Identity", ["c"], ["going"]),
            n("Gather", ["x", "i"], ["row"]),
            n("Unsqueeze", ["row", "zero"], ["slice"]),
            n("Sub", ["last", "i"], ["k"]),
            n("Expand", ["k", "like"], ["places"]),
            n("ScatterElements", ["s", "places", "slice"], ["written"], axis=0),
            n("ReduceSum", ["r"], ["total"], keepdims=0),
            n("Add", ["slice", "total"], ["other"]),
            n("Reshape", ["i", "matrix"], ["place"]),
            n("ScatterND", ["r", "place", "other"], ["again"]),
        ],
        [value("i", INT64, []), value("c", BOOL, []), value("s", FLOAT, [rows, 2]),
         value("r", FLOAT, [rows, 2])],
        [value("going", BOOL, []), value("written"), value("again")],
    )  # fmt: skip
    feed = {"x": floats(rows, 2) * 0.01, "first": floats(rows, 2, seed=1) * 0.01}
    nodes = [n("Loop", ["trips", "", "first", "first"], ["s1", "r1"], body=step)]
    outputs = [value("s1", FLOAT, [rows, 2]), value("r1", FLOAT, [rows, 2])]
    return model(
        nodes, feed, outputs, trips=np.array(rows - 2), last=np.array(rows - 1),
        zero=np.array([0]), like=np.array([1, 2]), matrix=np.array([1, 1]),
    ), [feed]  # fmt: skip


def written_and_copied(op: str = "Sigmoid", rows: int = 70) -> Made:
    """A tensor that is written at counted places, and handed on by copies that only change its
    shape and add zero, as Paddle's converter writes them. A state that no iteration reads
    becomes the same, one has no other use."""
    step = body(
        [
            n("Identity", ["c"], ["going"]),
            n("Gather", ["x", "i"], ["row"]),
            n(op, ["row"], ["share"]),
            n("Reshape", ["share", "slice"], ["new"]),
            n("Expand", ["i", "slice"], ["at"]),
            n("ScatterElements", ["s", "at", "new"], ["written"], axis=1),
            n("Unsqueeze", ["written", "front"], ["longer"]),
            n("Add", ["longer", "nothing"], ["sum"]),
            n("Squeeze", ["sum", "front"], ["copy"]),
            n("Exp", ["row"], ["unused"]),
        ],
        [value("i", INT64, []), value("c", BOOL, []), value("before", FLOAT, None),
         value("s", FLOAT, [1, rows, 2]), value("other", FLOAT, None)],
        [value("going", BOOL, []), value("written"), value("copy"), value("unused")],
    )  # fmt: skip
    feed = {"x": floats(rows, 2)}
    nodes = [n("Loop", ["trips", "yes", "none", "s0", "none"], ["w", "s1", "o"], body=step)]
    outputs = [value("w", FLOAT, [1, rows, 2]), value("s1", FLOAT, [1, rows, 2])]
    return model(
        nodes, feed, outputs, trips=np.array(rows - 1), yes=np.array(True),
        none=np.float32(7), s0=np.zeros((1, rows, 2), np.float32), front=np.array([0]),
        slice=np.array([1, 1, 2]), nothing=np.float32(0),
    ), [feed]  # fmt: skip


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
        layers_or_scores, constants_or_inputs, parts_of_rows, until_small, known_times, growing,
        both_ways, nested, counting, written_rows, appended, put_in_front, written_elements,
        written_and_copied,
    )
}  # fmt: skip

"""Lifting: functions of te, topi and relax become expressions that compute the same;
what has none is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx, topi
from tvm.s_tir import Schedule

from tuner.lowering.importers.lift import LiftError, lift, lift_te
from tuner.lowering.module import module
from tuner.spaces.default_schedule import default_program
from tuner.spaces.rewrite.stages import inlined
from tuner.workload.arrays import numpy_dtype
from tuner.workload.expression import Binary, Expression, Read, Select, reads, walk
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import workload_from_expression, workload_from_notation

Tensors = list[te.Tensor]


def run(function: tirx.PrimFunc, expression: Expression) -> tuple[float, float]:
    """How far the function, compiled by TVM as it stands, is from the lifted
    expression's reference, and how far it may be."""
    arrays = make_inputs(expression, seed=5)
    want, magnitude = evaluate_with_magnitude(expression, arrays)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    library = tvm.tirx.build(module, target=tvm.target.Target({"kind": "llvm"}))
    outputs = {name: expression.tensor(name) for name in expression.outputs}
    held = {
        name: tvm.runtime.tensor(np.full(tensor.shape, 7, numpy_dtype(tensor.dtype)))
        for name, tensor in outputs.items()
    }
    library["main"](
        *(tvm.runtime.tensor(arrays[tensor.name]) for tensor in expression.inputs), *held.values()
    )
    return max_rel_error(
        expression, {name: tensor.numpy() for name, tensor in held.items()}, want, magnitude
    ), error_bound(expression)


def place(*shape: int, dtype: str = "float32", name: str = "X") -> te.Tensor:
    return te.placeholder(shape, name=name, dtype=dtype)


def matmul() -> Tensors:
    a, b, k = place(5, 7, name="A"), place(7, 6, name="B"), te.reduce_axis((0, 7), name="k")
    return [a, b, te.compute((5, 6), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def of(make: Callable[..., Any], *inputs: te.Tensor) -> Callable[[], Tensors]:
    return lambda: [*inputs, make(*inputs)]


def several_stages() -> Tensors:
    x, bias = place(6, 9), place(9, name="bias")
    shifted = te.compute((6, 9), lambda i, j: x[i, j] + bias[j], name="shifted")
    k = te.reduce_axis((0, 9), name="k")
    largest = te.compute((6,), lambda i: te.max(shifted[i, k], axis=k), name="largest")
    scaled = te.compute(
        (6, 9), lambda i, j: te.exp(shifted[i, j] - largest[i]) * 0.5, name="scaled"
    )
    return [x, bias, largest, scaled]


def guarded_read() -> Tensors:
    x = place(6, 9)
    return [
        x,
        te.compute(
            (6, 9), lambda i, j: te.if_then_else(j > i, x[i, j - i - 1] * 2.0, -1.0), name="Y"
        ),
    ]


def narrow_integers() -> Tensors:
    x, y = place(4, 9, dtype="int8"), place(4, 9, dtype="int8", name="Y")
    return [
        x,
        y,
        te.compute((4, 9), lambda i, j: te.max(x[i, j] * y[i, j], x[i, j] + y[i, j]), name="Z"),
    ]


X, ROWS = place(5, 12), place(4, 33)
NHWC, NCHW = place(2, 7, 6, 3), place(2, 4, 7, 6)
GATHER = place(11, 5, name="table"), place(7, dtype="int32", name="at")
CASES: dict[str, Callable[[], Tensors]] = {
    "matmul": matmul,
    "conv2d_nhwc": of(lambda x, w: topi.nn.conv2d_nhwc(x, w, 1, 1, 1), NHWC, place(3, 3, 3, 5,
    name="W")),
    "conv2d_nchw": of(lambda x, w: topi.nn.conv2d_nchw(x, w, 2, 1, 1), NCHW, place(5, 4, 3, 3,
    name="W")),
    "conv2d_dilated": of(lambda x, w: topi.nn.conv2d_nchw(x, w, 1, 2, 2), NCHW, place(5, 4, 3, 3,
    name="W")),
    "conv2d_half": of(
        lambda x, w: topi.nn.conv2d_nhwc(x, w, 1, 1, 1, out_dtype="float32"),
        place(1, 5, 5, 3, dtype="float16"), place(3, 3, 3, 4, dtype="float16", name="W"),
    ),
    "depthwise": of(lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1), NCHW, place(4, 1, 3,
    3, name="W")),
    "conv2d_transpose": of(
        lambda x, w: topi.nn.conv2d_transpose_nchw(x, w, (2, 2), (1, 1), "float32", (0, 0)), NCHW,
        place(4, 3, 3, 3, name="W")
    ),
    "dense": of(topi.nn.dense, X, place(8, 12, name="W"), place(8, name="b")),
    "max_pool2d": of(lambda x: topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max"),
    NCHW),
    "avg_pool2d": of(lambda x: topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (1, 1, 1, 1), "avg",
    count_include_pad=False), NCHW),
    "softmax": of(topi.nn.softmax, ROWS),
    "log_softmax": of(topi.nn.log_softmax, ROWS),
    "layer_norm": of(lambda x, g, b: topi.nn.layer_norm(x, g, b, [1]), ROWS, place(33, name="g"),
    place(33, name="b")),
    "rms_norm": of(lambda x, g: topi.nn.rms_norm(x, g, [1]), ROWS, place(33, name="g")),
    "batch_matmul": of(topi.nn.batch_matmul, place(3, 4, 5), place(3, 6, 5, name="W")),
    "transpose": of(lambda x: topi.transpose(x, (0, 3, 1, 2)), NHWC),
    "reshape": of(lambda x: topi.reshape(x, (14, 18)), NHWC),
    "concatenate": lambda: [X, (y := place(5, 3, name="Y")), topi.concatenate((X, y), 1)],
    "strided_slice": of(lambda x: topi.strided_slice(x, [1, 0], [5, 11], [2, 3]), X),
    "pad": of(lambda x: topi.nn.pad(x, (1, 2), (0, 3), 0.5), X),
    "take": of(lambda x, i: topi.take(x, i, 0, mode="clip"), *GATHER),
    "sum": of(lambda x: topi.sum(x, 1), X),
    "prod": of(lambda x: topi.prod(x, 0), X),
    "max": of(lambda x: topi.max(x, 1), X),
    "min": of(lambda x: topi.min(x, 0), place(5, 12, dtype="int32")),
    "gelu": of(lambda x: x * 0.5 * (topi.erf(x * 0.7071067811865476) + 1.0), X),
    "activations": of(lambda x: topi.sigmoid(topi.tanh(topi.nn.leaky_relu(x,
    0.1))) * topi.rsqrt(x * x + 1.0), X),
    "powers": of(lambda x: topi.power(topi.abs(x) + 1.0,
    1.5) + topi.sqrt(topi.exp(-x)) + topi.log(topi.abs(x) + 1.0), X),
    "casts": of(lambda x: topi.cast(topi.cast(x, "float64") * 3.0, "float32"), X),
    "mask": of(lambda x: topi.cast(topi.greater(x, 0.25), "float32"), X),
    "triangle": of(lambda x: topi.trilu(x, tirx.const(1, "int64"), False), X),
    "several_stages": several_stages,
    "guarded_read": guarded_read,
    "narrow_integers": narrow_integers,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_lifted_te_computes_the_same(name: str) -> None:
    tensors = CASES[name]()
    expression = lift_te(tensors)
    given = [tensor for tensor in tensors if isinstance(tensor.op, te.PlaceholderOp)]
    assert [tensor.shape for tensor in expression.inputs] == [
        tuple(int(extent) for extent in tensor.shape) for tensor in given
    ]
    outputs = [tensor for tensor in tensors if tensor not in given]
    error, bound = run(te.create_prim_func([*given, *outputs]), expression)
    assert error <= bound
    assert workload_from_expression(expression).expression == expression


@pytest.mark.parametrize(
    "name", ["conv2d_nhwc", "conv2d_nchw", "depthwise", "max_pool2d", "conv2d_half"]
)
def test_padding_becomes_a_padded_read_of_one_stage(name: str) -> None:
    expression = lift_te(CASES[name]())
    assert len(expression.stages) == 1
    (stage,) = expression.stages
    assert next(reads(stage.body)).pad is not None
    assert not any(isinstance(node, Select) for node in walk(stage.body))
    if name == "max_pool2d":
        (read,) = reads(stage.body)
        assert read.pad is not None and read.pad.value == -np.inf


def test_a_window_of_padding_alone_keeps_its_padding() -> None:
    """Its maximum is the lowest finite number, not -inf."""
    x, k = place(3), te.reduce_axis((0, 2), name="k")
    padded = topi.nn.pad(x, (4,), (0,), float(np.finfo(np.float32).min))
    y = te.compute((6,), lambda i: te.max(padded[i + k], axis=k), name="Y")
    expression = lift_te([x, y])
    pads = [
        read.pad
        for stage in expression.stages
        for read in reads(stage.body)
        if read.pad is not None
    ]
    assert [pad.value for pad in pads] == [np.finfo(np.float32).min]
    error, bound = run(te.create_prim_func([x, y]), expression)
    assert error <= bound


def test_padding_that_the_tensor_cannot_hold_stays_a_selection() -> None:
    x = place(6, dtype="float16")
    y = te.compute(
        (8,),
        lambda i: te.if_then_else(te.all(i >= 1, i < 7), x[i - 1].astype("float32"), 0.1),
        name="Y",
    )
    expression = lift_te([x, y])
    assert any(isinstance(node, Select) for node in walk(expression.stages[0].body))
    error, bound = run(te.create_prim_func([x, y]), expression)
    assert error <= bound


def test_comparisons_of_floats_are_lifted_as_they_were_written() -> None:
    """TVM gets them hidden, since it takes what is not less for greater or equal."""
    text = "kernel k(X: f32[4]) -> (Y: f32[4]) { Y[i] = where(X[i] > 0, X[i], 0.5) }"
    workload = workload_from_notation(text, {})
    function = module(default_program(workload), "k")["k"]
    (stage,) = lift(function, "k").stages
    assert [node.op for node in walk(stage.body) if isinstance(node, Binary)] == ["gt"]


def test_long_chains_of_scalar_operations_are_inlined() -> None:
    y = X
    for step in range(20):
        y = topi.add(topi.multiply(y, 0.9), float(step))
    expression = lift_te([X, y])
    assert len(expression.stages) == 1
    error, bound = run(te.create_prim_func([X, y]), expression)
    assert error <= bound


def test_inputs_are_found_in_the_order_of_the_graph() -> None:
    _, b, c = matmul()
    assert [tensor.name for tensor in lift_te([c]).inputs] == ["A", "B"]
    assert [tensor.name for tensor in lift_te([b, c]).inputs] == ["B", "A"]


def test_half_precision_is_computed_in_single() -> None:
    x = place(4, 9, dtype="float16")
    expression = lift_te([x, topi.sum(x * x, 1)])
    assert [(stage.dtype, stage.accumulator) for stage in inlined(expression).stages] == [
        ("float16", "float32")
    ]


def legalized(
    model: Callable[[relax.BlockBuilder, list[relax.Var]], Any], shapes: list[tuple[int, ...]]
) -> dict[str, tirx.PrimFunc]:
    """The functions of a model after legalisation, and again after fusion."""
    builder = relax.BlockBuilder()
    variables = [
        relax.Var(f"p{number}", relax.TensorType(shape, "float32"))
        for number, shape in enumerate(shapes)
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(model(builder, variables))
        builder.emit_func_output(result)
    module = relax.transform.LegalizeOps()(builder.get())
    fused = module
    for step in (
        relax.transform.AnnotateTIROpPattern,
        relax.transform.FuseOps,
        relax.transform.FuseTIR,
    ):
        fused = step()(fused)
    return {
        f"{number} {name.name_hint}": function
        for number, mod in enumerate((module, fused))
        for name, function in mod.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }


def test_legalized_and_fused_relax_functions_compute_the_same() -> None:
    def model(builder: relax.BlockBuilder, p: list[relax.Var]) -> Any:
        x = builder.emit(relax.op.nn.conv2d(p[0], p[1], padding=(1, 1)))
        x = builder.emit(relax.op.nn.relu(relax.op.add(x, p[2])))
        x = builder.emit(relax.op.nn.max_pool2d(x, (2, 2), (2, 2)))
        x = builder.emit(relax.op.reshape(x, (2, 36)))
        x = builder.emit(relax.op.nn.gelu(relax.op.matmul(x, p[3])))
        return relax.op.nn.softmax(x)

    functions = legalized(model, [(2, 3, 6, 6), (4, 3, 3, 3), (1, 4, 1, 1), (36, 8)])
    assert len(functions) >= 8
    for name, function in functions.items():
        error, bound = run(function, lift(function, name))
        assert error <= bound, name


REFUSED: dict[str, tuple[Callable[[], Tensors], str]] = {
    "argmax": (of(lambda x: topi.argmax(x, 1), X), "X_red_temp.*tuples"),
    "scalar": (of(topi.sum, X), "has no dimensions"),
    "unknown function": (of(topi.floor, X), "'floor' is none of"),
    "unknown dtype": (of(lambda x: topi.cast(x, "float8_e5m2"), X), "dtype float8_e5m2"),
    "unclamped gather": (of(lambda x, i: topi.take(x, i, 0, mode="fast"), *GATHER), "clamp"),
    "symbolic": (
        lambda: [
            (x := te.placeholder((te.var("n"), 3), name="X")),
            te.compute(x.shape, lambda i, j: x[i, j]),
        ],
        "symbolic extent",
    ),
    "truncating division": (
        of(lambda x: te.compute(x.shape, lambda i: te.truncdiv(x[i], 3)), place(7, dtype="int32")),
        "towards zero",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_expression_is_refused_by_name(name: str) -> None:
    make, why = REFUSED[name]
    with pytest.raises(LiftError, match=why):
        lift_te(make())


@pytest.mark.parametrize("primitive", ["split", "fuse", "decompose", "predicate"])
def test_scheduled_functions_are_refused(primitive: str) -> None:
    scheduled = Schedule(tvm.IRModule({"main": te.create_prim_func(matmul())}))
    i, j, k = scheduled.get_loops(scheduled.get_sblock("C"))
    match primitive:
        case "split":
            scheduled.split(j, [2, 3])
        case "predicate":
            scheduled.split(j, [None, 4])
        case "fuse":
            scheduled.fuse(i, j)
        case "decompose":
            scheduled.decompose_reduction(scheduled.get_sblock("C"), k)
    with pytest.raises(LiftError, match="block 'C"):
        lift(scheduled.mod["main"], "matmul")


def test_reordered_and_parallel_loops_change_nothing() -> None:
    function = te.create_prim_func(matmul())
    scheduled = Schedule(tvm.IRModule({"main": function}))
    i, j, k = scheduled.get_loops(scheduled.get_sblock("C"))
    scheduled.reorder(k, j, i)
    scheduled.vectorize(i)
    assert lift(scheduled.mod["main"], "matmul") == lift(function, "matmul")


def test_other_starts_of_a_reduction_are_refused() -> None:
    scheduled = Schedule(tvm.IRModule({"main": te.create_prim_func(matmul())}))
    text = scheduled.mod["main"].script().replace("T.float32(0.0)", "T.float32(1.0)")
    with pytest.raises(LiftError, match="starts its sum from"):
        lift(tvm.script.from_source(text), "matmul")


def test_no_output_is_refused() -> None:
    with pytest.raises(LiftError, match="no computed tensor"):
        lift_te([X])


def test_padded_reads_carry_the_tensors_dtype() -> None:
    expression = lift_te(CASES["conv2d_half"]())
    pads = [
        node.pad
        for node in walk(expression.stages[0].body)
        if isinstance(node, Read) and node.pad is not None
    ]
    assert [pad.dtype for pad in pads] == ["float16"]


@pytest.mark.parametrize("text", [
    "kernel part(X: f32[4, 5]) -> (Y: f32[2]) { T[i] += X[i, k]\n Y[i] = T[i] for i in 0:2 }",
    # Simplified, the index is a remainder by -2.
    "kernel odd(X: f32[2]) -> (Y: f32[3]) { Y[i] = X[(4 - i) % 2] for i in 0:3 }",
])  # fmt: skip
def test_what_is_lowered_comes_back(text: str) -> None:
    expression = workload_from_notation(text, {}).expression
    lifted = lift(
        module(default_program(workload_from_expression(expression)), "kernel")["kernel"], "kernel"
    )
    arrays = make_inputs(expression, seed=3)
    want = evaluate(expression, arrays)
    got = evaluate(
        lifted, dict(zip((tensor.name for tensor in lifted.inputs), arrays.values(), strict=True))
    )
    for actual, expected in zip(got.values(), want.values(), strict=True):
        np.testing.assert_array_equal(actual, expected)

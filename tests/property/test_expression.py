"""Properties of expressions: the reference equals a naive interpreter, keys ignore
names alone, documents keep all."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.interpreter import interpret
from tests.support.random_expressions import expressions
from tuner.workload.expression import Axis, Expression, Read, Scalar, Tensor, Var, rewrite
from tuner.workload.inputs import make_inputs
from tuner.workload.keys import workload_key
from tuner.workload.reference import error_bound, evaluate, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import from_document, to_document, workload_from_expression

COMMON = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def renamed(expression: Expression, prefix: str) -> Expression:
    """The same program with every name of kernel, tensors and iterators changed."""

    def scalar(node: Scalar) -> Scalar | None:
        if isinstance(node, Var):
            return Var(prefix + node.name)
        if isinstance(node, Read):
            return Read(
                prefix + node.tensor,
                tuple(rewrite(index, scalar) for index in node.indices),
                node.pad,
            )
        return None

    def axes(given: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(replace(axis, name=prefix + axis.name) for axis in given)

    return Expression(
        name=prefix + expression.name,
        inputs=tuple(replace(tensor, name=prefix + tensor.name) for tensor in expression.inputs),
        stages=tuple(
            replace(
                stage,
                name=prefix + stage.name,
                axes=axes(stage.axes),
                reduce_axes=axes(stage.reduce_axes),
                body=rewrite(stage.body, scalar),
            )
            for stage in expression.stages
        ),
        outputs=tuple(prefix + name for name in expression.outputs),
    )


@COMMON
@given(expressions(), st.integers(0, 99), st.sampled_from(["normal", "large", "zeros"]))
def test_reference_equals_a_naive_interpreter(expression: Expression, seed: int, kind: str) -> None:
    inputs = make_inputs(expression, seed, kind)  # type: ignore[arg-type]  # the strategy draws from the literal's values
    values, magnitudes = evaluate_with_magnitude(expression, inputs)
    for name, naive in interpret(expression, inputs).items():
        difference = np.abs(values[name] - naive.astype(np.float64))
        assert (difference <= 1e-11 * np.maximum(magnitudes[name], 1e-200)).all()
        assert (magnitudes[name] >= np.abs(values[name]) * (1 - 1e-9)).all()


@COMMON
@given(expressions(dtypes=("i32", "i8", "i64")), st.integers(0, 99))
def test_integers_are_exact(expression: Expression, seed: int) -> None:
    inputs = make_inputs(expression, seed)
    values = evaluate(expression, inputs)
    for name, naive in interpret(expression, inputs).items():
        bits = {"int8": 8, "int32": 32, "int64": 64}[expression.tensor(name).dtype]
        wrapped = [
            (int(value) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) for value in naive.ravel()
        ]
        assert values[name].ravel().tolist() == wrapped
    assert error_bound(expression) == 0.0


@COMMON
@given(expressions(dtypes=("f32",)), st.integers(0, 99))
def test_float32_results_are_within_the_bound_and_wrong_ones_are_not(
    expression: Expression, seed: int
) -> None:
    inputs = make_inputs(expression, seed)
    want, magnitude = evaluate_with_magnitude(expression, inputs)
    got = {name: array.astype(np.float32) for name, array in want.items()}
    assert max_rel_error(expression, got, want, magnitude) <= error_bound(expression)
    largest = np.unravel_index(int(np.argmax(magnitude["Y"])), magnitude["Y"].shape)
    got["Y"][largest] += np.float32(1e-2 * max(1.0, float(magnitude["Y"][largest])))
    assert max_rel_error(expression, got, want, magnitude) > error_bound(expression)


@COMMON
@given(expressions(), st.sampled_from(["a_", "zz", "Q"]))
def test_key_ignores_names(expression: Expression, prefix: str) -> None:
    assert workload_key(renamed(expression, prefix)) == workload_key(expression)


@COMMON
@given(expressions(), st.sampled_from(["a_", "zz", "Q"]))
def test_equal_keys_mean_equal_programs_up_to_names(first: Expression, prefix: str) -> None:
    second = renamed(first, prefix)
    assert workload_key(first) == workload_key(second)
    assert [tensor.shape for tensor in first.inputs] == [tensor.shape for tensor in second.inputs]
    inputs = make_inputs(first, 0)
    other = {b.name: inputs[a.name] for a, b in zip(first.inputs, second.inputs, strict=True)}
    (before,), (after,) = first.outputs, second.outputs
    np.testing.assert_array_equal(evaluate(first, inputs)[before], evaluate(second, other)[after])


@COMMON
@given(expressions())
def test_key_tells_shapes_dtypes_constants_and_numerics_apart(expression: Expression) -> None:
    first = expression.inputs[0]
    others = [
        replace(
            expression,
            inputs=(
                Tensor(
                    name=first.name, shape=(first.shape[0] + 1, *first.shape[1:]), dtype=first.dtype
                ),
                *expression.inputs[1:],
            ),
        ),
        replace(expression, inputs=(replace(first, dtype="int64"), *expression.inputs[1:])),
        replace(
            expression,
            stages=(*expression.stages[:-1], replace(expression.stages[-1], dtype="int64")),
        ),
    ]
    keys = [
        workload_key(expression),
        workload_key(expression, (first.name,)),
        workload_key(expression, (), "fast"),
        *map(workload_key, others),
    ]
    assert len(set(keys)) == len(keys)


@COMMON
@given(expressions())
def test_document_round_trip(expression: Expression) -> None:
    workload = workload_from_expression(expression)
    assert from_document(json.loads(json.dumps(to_document(workload)))) == workload

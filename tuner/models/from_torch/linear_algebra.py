"""Determinants, inverses, systems of equations and Cholesky factors of ATen. What only derivatives
or checks read, such as factors and error codes, is not given."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.models.from_torch.call import Call, Convert, Results
from tuner.models.operators import elimination, movement
from tuner.models.operators.values import Value


def _others(call: Call) -> list[None]:
    return [None] * (len(call.shapes) - 1)


def determinant(call: Call) -> Results:
    return (elimination.determinant(call.value("A")), *_others(call))


def sign_and_logarithm(call: Call) -> Results:
    return (*elimination.sign_and_logarithm(call.value("A")), *_others(call)[1:])


def inverse(call: Call) -> Results:
    return (elimination.inverse(call.value("A")), *_others(call))


def cholesky(call: Call) -> Results:
    factor = elimination.cholesky(call.value("self"), upper=bool(call.get("upper")))
    return (factor, *_others(call))


def solve(call: Call) -> Results:
    a, b = call.value("A"), call.value("B")
    # As PyTorch tells vectors from matrices.
    is_vector = b.rank == 1 or (b.rank == a.rank - 1 and b.shape == a.shape[:-1])
    if not call.get("left", True):
        a, b = _transposed(a), b if is_vector else _transposed(b)
    result = elimination.solve(a, movement.unsqueeze(b, [-1]) if is_vector else b)
    if is_vector:
        result = movement.squeeze(result, [-1])
    elif not call.get("left", True):
        result = _transposed(result)
    return (result, *_others(call))


def solve_triangular(call: Call) -> Value:
    a, b, is_upper = call.value("self"), call.value("B"), bool(call["upper"])
    is_left = bool(call.get("left", True))
    if not is_left:
        a, b, is_upper = _transposed(a), _transposed(b), not is_upper
    result = elimination.solve_triangular(
        a, b, upper=is_upper, unit=bool(call.get("unitriangular"))
    )
    return result if is_left else _transposed(result)


def _transposed(x: Value) -> Value:
    return movement.transpose(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


TABLE: Mapping[str, Convert] = {
    "aten._linalg_det.default": determinant,
    "aten._linalg_slogdet.default": sign_and_logarithm,
    "aten._linalg_solve_ex.default": solve,
    "aten.linalg_cholesky_ex.default": cholesky,
    "aten.linalg_inv_ex.default": inverse,
    "aten.linalg_solve_triangular.default": solve_triangular,
}

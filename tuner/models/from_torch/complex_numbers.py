"""Operators of ATen on complex tensors, as programs on their real and imaginary parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.models.from_torch.call import Call, Convert
from tuner.models.operators import complex_values as numbers
from tuner.models.operators.complex_values import Complex
from tuner.models.operators.elementwise import cast
from tuner.models.operators.movement import expand
from tuner.models.operators.values import Value

# Operators that do the same to both parts, with the arguments that have parts. A real one
# has no imaginary part.
_PARTWISE: Mapping[str, Sequence[str]] = {
    "aten.add.Scalar": ("self", "other"),
    "aten.add.Tensor": ("self", "other"),
    "aten.alias.default": ("self",),
    "aten.as_strided.default": ("self",),
    "aten.cat.default": ("tensors",),
    "aten.clone.default": ("self",),
    "aten.constant_pad_nd.default": ("self", "value"),
    "aten.copy.default": ("self", "src"),
    "aten.cumsum.default": ("self",),
    "aten.diagonal.default": ("self",),
    "aten.embedding.default": ("weight",),
    "aten.expand.default": ("self",),
    "aten.fill.Scalar": ("value",),
    "aten.flip.default": ("self",),
    "aten.full.default": ("fill_value",),
    "aten.full_like.default": ("fill_value",),
    "aten.gather.default": ("self",),
    "aten.index.Tensor": ("self",),
    "aten.index_put.default": ("self", "values"),
    "aten.index_select.default": ("self",),
    "aten.lift_fresh_copy.default": ("self",),
    "aten.mean.default": ("self",),
    "aten.mean.dim": ("self",),
    "aten.neg.default": ("self",),
    "aten.permute.default": ("self",),
    "aten.repeat.default": ("self",),
    "aten.roll.default": ("self",),
    "aten.scatter.src": ("self", "src"),
    "aten.scatter_add.default": ("self", "src"),
    "aten.select.int": ("self",),
    "aten.select_scatter.default": ("self", "src"),
    "aten.slice.Tensor": ("self",),
    "aten.slice_scatter.default": ("self", "src"),
    "aten.split_with_sizes.default": ("self",),
    "aten.squeeze.dim": ("self",),
    "aten.squeeze.dims": ("self",),
    "aten.sub.Scalar": ("self", "other"),
    "aten.sub.Tensor": ("self", "other"),
    "aten.sum.default": ("self",),
    "aten.sum.dim_IntList": ("self",),
    "aten.tril.default": ("self",),
    "aten.triu.default": ("self",),
    "aten.unfold.default": ("self",),
    "aten.unsqueeze.default": ("self",),
    "aten.view.default": ("self",),
    "aten.where.self": ("self", "other"),
}

ComplexConvert = Callable[[Call], Any]  # to a value, a complex one, or several of either


def complex_convert(op: str, of_real: Mapping[str, Convert]) -> ComplexConvert | None:
    """The program of an operator on complex tensors, given those on real ones."""
    return _partwise(of_real[op], _PARTWISE[op]) if op in _PARTWISE else TABLE.get(op)


def _partwise(convert: Convert, names: Sequence[str]) -> ComplexConvert:
    """What does an operator of real tensors to both parts of the arguments of these names."""

    def both(call: Call) -> Any:
        def part(is_real: bool) -> Any:
            given = {
                name: _part(argument, is_real) if name in names else argument
                for name, argument in call.arguments.items()
            }
            return convert(replace(call, arguments=given))

        real, imaginary = part(True), part(False)
        if isinstance(real, Value):
            return Complex(real, imaginary)
        return [Complex(*parts) for parts in zip(real, imaginary, strict=True)]

    return both


def _part(given: Any, is_real: bool) -> Any:
    if isinstance(given, list):
        return [_part(entry, is_real) for entry in given]
    if isinstance(given, Value):
        given = numbers.from_real(given)
    if isinstance(given, Complex):
        return given.real if is_real else given.imaginary
    return complex(given).real if is_real else complex(given).imag


def _complex(call: Call, name: str) -> Complex:
    """An argument as complex numbers whose parts have the result's dtype."""
    given = call[name]
    if isinstance(given, Complex):
        return given.each(lambda part: cast(part, call.dtype))
    if isinstance(given, Value):
        return numbers.from_real(cast(given, call.dtype))
    number = complex(given)
    parts = (call.builder.constant(part, call.dtype) for part in (number.real, number.imag))
    return Complex(*parts)


def _convert(call: Call) -> Complex | Value:
    x, dtype = _complex(call, "self"), call.get("dtype")
    return x.real if dtype is not None and not dtype.is_complex else x


def _of_parts(call: Call) -> Complex:
    parts = (expand(call.value(name, call.dtype), call.shape) for name in ("real", "imag"))
    return Complex(*parts)


def _multiply(call: Call) -> Complex:
    return numbers.multiply(_complex(call, "self"), _complex(call, "other"))


def _divide(call: Call) -> Complex:
    return numbers.divide(_complex(call, "self"), _complex(call, "other"))


def _product(call: Call) -> Complex:
    return numbers.product(_complex(call, "self"), _complex(call, "mat2"))


def _product_and_sum(call: Call) -> Complex:
    if (call.get("alpha", 1), call.get("beta", 1)) != (1, 1):
        raise call.refusal("scales what it adds; write the product and the sum")
    product = numbers.product(_complex(call, "mat1"), _complex(call, "mat2"))
    return numbers.add(product, _complex(call, "self"))


def _reciprocal(call: Call) -> Complex:
    x = _complex(call, "self")
    return numbers.divide(numbers.from_real(call.builder.constant(1, call.dtype)), x)


def _power(call: Call) -> Complex:
    """Of a constant real exponent: whole ones as products, others by the angle."""
    x, exponent = _complex(call, "self"), complex(call["exponent"])
    if exponent.imag:
        raise call.refusal("has a complex exponent")
    return numbers.power(x, exponent.real)


def _scale(call: Call, lengths: Sequence[int]) -> float:
    """The factor of a transform's sums: 1, 1/√n or 1/n by ATen's number."""
    powers: Sequence[float] = (0, -0.5, -1)
    return float(math.prod(lengths) ** powers[call["normalization"]])


def _axes(call: Call) -> list[int]:
    return [axis % call["self"].rank for axis in call["dim"]]


def _complex_transform(call: Call) -> Complex:
    x, axes = _complex(call, "self"), _axes(call)
    scale = _scale(call, [x.shape[axis] for axis in axes])
    return numbers.fourier(x, axes, inverse=not call["forward"], scale=scale)


def _real_transform(call: Call) -> Complex:
    x, axes = call.value("self", call.dtype), _axes(call)
    scale = _scale(call, [x.shape[axis] for axis in axes])
    return numbers.fourier_of_real(x, axes, one_sided=call["onesided"], scale=scale)


def _transform_to_real(call: Call) -> Value:
    x, axes = _complex(call, "self"), _axes(call)
    scale = _scale(call, [call.shape[axis] for axis in axes])
    return numbers.fourier_to_real(x, axes, call["last_dim_size"], scale)


# Of tensors some of which are complex.
TABLE: Mapping[str, ComplexConvert] = {
    "aten._conj.default": lambda call: numbers.conjugate(_complex(call, "self")),
    "aten._conj_physical.default": lambda call: numbers.conjugate(_complex(call, "self")),
    "aten._fft_c2c.default": _complex_transform,
    "aten._fft_c2r.default": _transform_to_real,
    "aten._fft_r2c.default": _real_transform,
    "aten._to_copy.default": _convert,
    "aten.addmm.default": _product_and_sum,
    "aten.abs.default": lambda call: numbers.absolute(_complex(call, "self")),
    "aten.angle.default": lambda call: numbers.angle(_complex(call, "self")),
    "aten.bmm.default": _product,
    "aten.complex.default": _of_parts,
    "aten.div.Scalar": _divide,
    "aten.div.Tensor": _divide,
    "aten.exp.default": lambda call: numbers.exponential(_complex(call, "self")),
    "aten.log.default": lambda call: numbers.logarithm(_complex(call, "self")),
    "aten.mm.default": _product,
    "aten.mul.Scalar": _multiply,
    "aten.mul.Tensor": _multiply,
    "aten.polar.default": lambda call: numbers.polar(call.value("abs"), call.value("angle")),
    "aten.pow.Tensor_Scalar": _power,
    "aten.reciprocal.default": _reciprocal,
    "aten.sqrt.default": lambda call: numbers.power(_complex(call, "self"), 0.5),
    "aten.view_as_complex.default": lambda call: numbers.from_pairs(call.value("self")),
    "aten.view_as_real.default": lambda call: numbers.pairs(_complex(call, "self")),
}

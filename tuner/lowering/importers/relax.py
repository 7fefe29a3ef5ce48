"""Models by way of TVM's Relax: each operator a function, lifted to an expression.

Convolutions are brought to NHWC. Nothing of TVM is left in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.relax.frontend.onnx import from_onnx

from tuner.errors import WorkloadError
from tuner.lowering.importers.lift import LiftError, lift
from tuner.workload.expression import DTYPE_BYTES, DType, Expression, Tensor

Array = np.ndarray[Any, np.dtype[Any]]
_LAYOUTS = {"relax.nn.conv2d": ["NHWC", "HWIO"]}
_REFUSALS = (
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    AssertionError,
    ArithmeticError,
)
_BOUNDS = ("maximum", "minimum")  # functions the frontend makes of Clip


class NotImported(WorkloadError):
    """A model that Relax refuses, or an operator of it that has no expression."""

    code = "invalid_model"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One function applied.

    Names of tensors are in the order of the expression's inputs and outputs.
    """

    expression: Expression
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(kw_only=True)
class Imported:
    """A model as calls in order.

    Names are those of values: model inputs, constants, results of earlier calls.
    """

    inputs: list[Tensor] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


def import_onnx(model: Any) -> Imported:
    """The calls of a checked `onnx.ModelProto` with static shapes. Raises NotImported."""
    return _imported(lambda: from_onnx(model, keep_params_in_input=False))


def import_exported(program: Any) -> Imported:
    """The calls of a `torch.export.ExportedProgram` with static shapes. Raises NotImported."""
    from tvm.relax.frontend.torch import from_exported_program  # noqa: PLC0415  # loads torch

    return _imported(lambda: from_exported_program(program, keep_params_as_input=False))


def _imported(frontend: Callable[[], tvm.IRModule]) -> Imported:
    try:
        module = _legalized(frontend())
    except _REFUSALS as error:
        lines = str(error).strip().splitlines()
        raise NotImported(
            f"the model has no import: {type(error).__name__}: {(lines or ['no reason'])[-1][:300]}"
        ) from error
    return _Reader(module).read()


def _legalized(module: tvm.IRModule) -> tvm.IRModule:
    passes = relax.transform
    module = _Norms(module).all()
    module = passes.FoldConstant()(passes.DecomposeOpsForInference()(module))
    module = _Plain(module).all()
    steps = (
        passes.DeadCodeElimination(),
        passes.ConvertLayout(_LAYOUTS),
        passes.Normalize(),
        passes.FoldConstant(),
        passes.CanonicalizeBindings(),
        passes.DeadCodeElimination(),
        passes.LegalizeOps(),
        passes.FoldConstant(),
        passes.DeadCodeElimination(),
    )
    for step in steps:
        module = step(module)
    return module


class _Rewriting(PyExprMutator):  # type: ignore[misc]  # TVM has no types
    """Rewrites every function of a module."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._module = module

    def all(self) -> tvm.IRModule:
        for name, function in self._module.functions.items():
            if isinstance(function, relax.Function):
                self.builder_.update_func(name, self.visit_expr(function))
        return self.builder_.get()


@mutator
class _Norms(_Rewriting):
    """Batch normalisation by constants as a product and a sum, with factors made in float64.

    So it ends the kernel before it, without a root or a division for each element.
    """

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if getattr(call.op, "name", "") != "relax.nn.batch_norm" or call.attrs.training:
            return call
        data, *statistics = call.args
        if not all(isinstance(constant, tvm.ir.GenericConst) for constant in statistics):
            return call
        gamma, beta, mean, variance = (
            constant.value.numpy().astype(np.float64) for constant in statistics
        )
        dtype = statistics[0].value.numpy().dtype
        factor = (gamma if call.attrs.scale else 1.0) / np.sqrt(variance + call.attrs.epsilon)
        offset = (beta if call.attrs.center else 0.0) - mean * factor
        shape = [1] * len(data.ty.shape)
        shape[call.attrs.axis] = -1
        scale, shift = (
            relax.const(values.reshape(shape).astype(dtype)) for values in (factor, offset)
        )
        scaled = self.builder_.emit(
            relax.op.add(self.builder_.emit(relax.op.multiply(data, scale)), shift)
        )
        return relax.Tuple([scaled, statistics[2], statistics[3]])


@mutator
class _Plain(_Rewriting):
    """Operators in the place of functions that the frontend made of them.

    Also, gathers read inside of their tensor only.
    """

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        name = getattr(call.op, "name", "")
        if name == "relax.take" and call.attrs.mode == "fast":
            return relax.op.take(*call.args, axis=call.attrs.axis, mode="clip")
        if name == "relax.call_tir":
            callee, operands = call.args[0], list(call.args[1].fields)
            base = callee.name_hint.rstrip("0123456789")
            if (
                base in _BOUNDS
                and len(operands) == 2
                and isinstance(operands[1], tvm.ir.GenericConst)
                and not operands[1].value.shape
            ):
                return getattr(relax.op, base)(operands[0], operands[1])
        return call


class _Reader:
    """Reads a module in Relax's normal form: one binding a call."""

    def __init__(self, module: tvm.IRModule) -> None:
        self.module, self.imported = module, Imported()
        self.names: dict[Any, str | tuple[str, ...]] = {}
        self.lifted: dict[str, Expression] = {}

    def read(self) -> Imported:
        main = self.module["main"]
        for param in main.params:
            name = f"in{len(self.imported.inputs)}"
            self.names[param] = name
            self.imported.inputs.append(
                Tensor(
                    name=name,
                    shape=_shape(param.ty, param.name),
                    dtype=_dtype(param.ty, param.name),
                )
            )
        for block in main.body.blocks:
            for binding in block.bindings:
                self.names[binding.var] = self.value(binding.value)
        result = self.value(main.body.body)
        self.imported.outputs = list(_flat(result))
        return self.imported

    def value(self, node: Any) -> str | tuple[str, ...]:
        """The name of a value, or the names of a tuple's values."""
        if isinstance(node, tvm.ir.GenericConst):
            return self.constant(node.value.numpy())
        if isinstance(node, relax.Tuple):
            return tuple(name for part in node.fields for name in _flat(self.value(part)))
        if isinstance(node, relax.TupleGetItem):
            return self.value(node.tuple_value)[node.index]
        if isinstance(node, relax.Call):
            return self.call(node)
        if node in self.names:
            return self.names[node]
        raise NotImported(
            f"{type(node).__name__} {str(node)[:80]!r} is no tensor; tensors with static shapes "
            f"are taken"
        )

    def constant(self, array: Array) -> str:
        name = f"c{len(self.imported.constants)}"
        self.imported.constants[name] = np.ascontiguousarray(
            array if array.ndim else array.reshape(1)
        )
        return name

    def call(self, call: relax.Call) -> str | tuple[str, ...]:
        operator = getattr(call.op, "name", "?")
        if operator != "relax.call_tir":
            raise NotImported(
                f"operator {operator} has no expression; the model must be without control flow "
                f"and sequences"
            )
        label = call.args[0].name_hint
        if label not in self.lifted:
            self.lifted[label] = self.lift(label)
        expression = self.lifted[label]
        inputs = tuple(name for part in call.args[1].fields for name in _flat(self.value(part)))
        if len(inputs) != len(expression.inputs):
            raise NotImported(
                f"operator {label} takes {len(expression.inputs)} tensors and is given "
                f"{len(inputs)}"
            )
        call_number = len(self.imported.calls)
        outputs = tuple(
            f"t{call_number}" if number == 0 else f"t{call_number}n{number}"
            for number in range(len(expression.outputs))
        )
        self.imported.calls.append(Call(expression=expression, inputs=inputs, outputs=outputs))
        return outputs[0] if len(outputs) == 1 else outputs

    def lift(self, label: str) -> Expression:
        function = self.module[label]
        if not isinstance(function, tirx.PrimFunc):
            raise NotImported(
                f"operator {label} is a {type(function).__name__}, no tensor function"
            )
        try:
            return lift(function, label)
        except LiftError as error:
            raise NotImported(f"operator {label} has no expression: {error}") from error


def _flat(names: str | tuple[str, ...]) -> Iterator[str]:
    yield from (names,) if isinstance(names, str) else names


def _shape(type_: Any, name: str) -> tuple[int, ...]:
    extents = getattr(type_, "shape", None)
    if extents is None or any(not isinstance(extent, tirx.IntImm) for extent in extents):
        raise NotImported(f"input {name!r} has no static shape")
    return tuple(int(extent.value) for extent in extents)


def _dtype(type_: Any, name: str) -> DType:
    supported: Mapping[str, DType] = {str(key): key for key in DTYPE_BYTES}  # type: ignore[misc]  # the keys are its members
    dtype = str(type_.dtype)
    if dtype not in supported:
        raise NotImported(f"input {name!r} is {dtype}; known are {', '.join(supported)}")
    return supported[dtype]

"""A program of `torch.export`, call by call, as a graph of expressions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tuner.errors import WorkloadError
from tuner.models.errors import ModelRefused
from tuner.models.from_torch import (
    bounded,
    experts,
    linear_algebra,
    places,
    quantization,
    recurrent,
)
from tuner.models.from_torch.call import Call, Convert, Results, dtype_of
from tuner.models.from_torch.complex_numbers import complex_convert
from tuner.models.from_torch.extents import Extents, is_late, is_symbolic
from tuner.models.from_torch.index_ranges import ranges_of
from tuner.models.from_torch.table import TABLE
from tuner.models.from_torch.traced import TakenApart, TracedPart, gotten_of, whole
from tuner.models.graph import Graph
from tuner.models.operators import branches
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.complex_values import Complex, from_pairs
from tuner.models.operators.extents import as_written
from tuner.models.operators.movement import transpose
from tuner.models.operators.values import Value

OPERATORS: Mapping[str, Convert] = {
    **TABLE,
    **bounded.TABLE,
    **experts.TABLE,
    **linear_algebra.TABLE,
    **places.TABLE,
    **quantization.TABLE,
    **recurrent.TABLE,
}
CONVOLUTION = "aten.convolution.default"
BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"
_DROPOUT = "aten.native_dropout.default"
_ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu.default"  # its fourth is dropout
_CHECKS = (
    "aten._assert_tensor_metadata.default",
    "aten._assert_scalar.default",
    "aten._assert_async.default",
    "aten._assert_async.msg",
    "aten._linalg_check_errors.default",
    "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default",
    "prims._make_token.default",
    "prims._sink_tokens.default",
)
_CONDITIONAL = "cond"
_IN_ORDER = "with_effects"  # calls an operator behind others, by tokens
# What they hold is for others to write.
UNSET = ("aten.empty.memory_format", "aten.empty_permuted.default", "aten.empty_strided.default")
_FAULTS = (ValueError, TypeError, IndexError, KeyError, ArithmeticError, WorkloadError)


def graph_of_program(program: Any) -> Graph:
    """The graph of a `torch.export.ExportedProgram` with static shapes, decomposed to core
    ATen operators. Raises ModelRefused naming the operator at fault."""
    import torch  # noqa: PLC0415  # loaded by whoever has a program

    aten = torch.ops.aten
    rules = torch.export.default_decompositions()
    for rule in [rule for rule in rules if str(rule) in recurrent.TABLE]:
        del rules[rule]
    rules.update(torch._decomp.get_decompositions([aten.addmv, aten.dist]))
    plain = program.run_decompositions(rules)
    reader, labels = Reader(), []
    result: Sequence[Any] = ()
    tensors = _held(plain)
    signature = plain.graph_signature
    ordering = {  # of calls whose effects come one after the other
        spec.arg.name
        for spec in (*signature.input_specs, *signature.output_specs)
        if spec.kind.name == "TOKEN"
    }
    with torch.no_grad():
        for node in plain.graph.nodes:
            if node.op == "placeholder" and node.name in tensors:
                reader.hold(node, tensors[node.name].detach())
            elif node.op == "placeholder" and node.name in ordering:
                reader.values[node] = None
            elif node.op == "placeholder":
                labels.append(node.name)
                reader.input(node)
                _real(reader.values[node], node)
            elif node.op == "call_function":
                reader.call(node)
            elif node.op == "get_attr":
                reader.values[node] = getattr(plain.graph_module, node.target)
            elif node.op == "output":
                result = node.args[0]
    # A number or None among the results is known to whoever wrote the program.
    given = [node for node in result if hasattr(node, "meta") and node.name not in ordering]
    outputs = [_real(reader.values[node], node) for node in given]
    names, written, counts = as_written([f"out{n}" for n in range(len(outputs))], outputs)
    return replace(reader.builder.graph(written, [*labels, *names]), bounded=counts)


def _real(value: Any, node: Any) -> Value:
    """What a program takes or gives. Raises ModelRefused for all but real tensors."""
    if isinstance(value, Complex):
        raise ModelRefused(
            f"{node.name!r} is complex; let the program take and give real numbers, as by "
            f"torch.view_as_complex and torch.view_as_real"
        )
    if not isinstance(value, Value):
        raise ModelRefused(f"{node.name!r} is no tensor; let the program take and give tensors")
    return value


def _held(program: Any) -> dict[str, Any]:
    """The program's own tensors, by the name of their placeholder."""
    signature = program.graph_signature
    tensors = {**program.state_dict, **program.constants}
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    return {name: tensors[key] for name, key in names.items()}


def is_random(node: Any) -> bool:
    """Whether a call's result differs from call to call."""
    import torch  # noqa: PLC0415

    op = str(node.target)
    if op in OPERATORS:  # whose rows refuse arguments that make them random
        return op == _DROPOUT and bool(node.args[2])
    if op == _ATTENTION:
        return bool(node.args[3:4] and node.args[3])
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


class Reader:
    """Records the calls of an `torch.fx` graph of ATen operators, one after the other.

    `values` has what each node is so far. Nothing is computed by PyTorch but what depends
    on constants alone, which wants `torch.no_grad()`. Calls whose operators have no expression
    are read as what `apart` takes them apart into.
    """

    def __init__(self, apart: TakenApart = whole) -> None:
        self.builder, self.apart = GraphBuilder(), apart
        self.values: dict[Any, Any] = {}
        self.folded: dict[Any, Any] = {}  # nodes whose results are known, as torch's tensors
        self.extents = Extents()

    def input(self, node: Any, order: Sequence[int] | None = None) -> None:
        """Makes a node an input, stored in the given order of its dimensions (default: as
        they are). Complex numbers have their parts as one more dimension, the last."""
        meta = node.meta.get("val")
        if meta is None or not hasattr(meta, "shape"):
            raise ModelRefused(
                f"input {node.name!r} is no tensor; export the program with tensors alone"
            )
        shape = [self.extents.bound(extent, node.name) for extent in meta.shape]
        dtype = dtype_of(meta.dtype, f"input {node.name!r}")
        order = range(len(shape)) if order is None else order
        inverse = sorted(range(len(order)), key=lambda axis: order[axis])
        stored = [shape[axis] for axis in order]
        if meta.dtype.is_complex:
            parts = from_pairs(self.builder.input([*stored, 2], dtype))
            self.values[node] = parts.each(lambda part: transpose(part, inverse))
        else:
            self.values[node] = transpose(self.builder.input(stored, dtype), inverse)

    def hold(self, node: Any, tensor: Any) -> None:
        """Makes a node a constant."""
        self.folded[node] = tensor
        self.values[node] = self.constant(tensor, node.name)

    def constant(self, tensor: Any, name: str) -> Value | Complex:
        import torch  # noqa: PLC0415

        if tensor.dtype.is_complex:
            parts = torch.view_as_real(tensor.detach().resolve_conj())
            real, imaginary = (self._constant(part, name) for part in parts.unbind(-1))
            return Complex(real, imaginary)
        return self._constant(tensor, name)

    def _constant(self, tensor: Any, name: str) -> Value:
        import torch  # noqa: PLC0415

        dtype = dtype_of(tensor.dtype, f"constant {name!r}")
        plain = tensor.detach().cpu().to_dense()
        array = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
        if array.size > 1 and (array == array.reshape(-1)[0]).all():
            # One number in memory, which those who read it recognise.
            array = np.broadcast_to(array.reshape(-1)[0], array.shape)
        return self.builder.constant(array, dtype)

    def call(self, node: Any) -> None:
        """Records a call of an operator. Raises ModelRefused for one without expression."""
        result, meta = self.result(node), node.meta.get("val")
        if is_late(meta) and not is_symbolic(meta):
            result = self.counted(result, meta, node)
        self.values[node] = result

    def counted(self, result: Any, meta: Any, node: Any) -> Any:
        """A call's results with the counts that their traced shapes have."""
        if isinstance(result, Value):
            return self.extents.noted(meta.shape, result)
        if result is None:
            return None
        if not isinstance(result, list | tuple):
            raise ModelRefused(f"{node.name!r} is complex and has an extent of run time")
        return [
            self.extents.noted(each.shape, value) if isinstance(value, Value) else value
            for value, each in zip(result, meta, strict=True)
        ]

    def result(self, node: Any) -> Any:
        if node.target is operator.getitem:
            source, place = node.args
            if source in self.folded:
                self.folded[node] = self.folded[source][place]
            return self.values[source][place]
        op, meta = str(node.target), node.meta.get("val")
        if op == _IN_ORDER and str(node.args[1]) in _CHECKS:
            return [None] * len(node.meta["val"])
        if op in _CHECKS or (is_symbolic(meta) and type(meta).__name__ != "SymInt"):
            return None
        if is_symbolic(meta):
            return self.extents.number(meta)
        if op == _CONDITIONAL:
            return self.branch(node)
        is_constant = all(source in self.folded for source in node.all_input_nodes)
        if is_constant and not is_random(node) and op not in quantization.KEPT:
            constant = self.fold(node)
            if constant is not None:
                return constant
        if is_random(node):
            raise ModelRefused(
                f"operator {op} ({node.name!r}) is random; a model must compute the same each time"
            )
        for value, within in ranges_of(op, partial(self.described, node, op)):
            self.builder.require(value, within)
        convert = self.convert(node, op)
        if convert is None:
            part = self.apart(node)
            if part is None:
                raise ModelRefused(f"operator {op} ({node.name!r}) has no expression yet")
            return self.in_parts(node, part)
        try:
            if op == BATCH_NORM and self.follows_convolution(node):
                return self.folded_batch_norm(node)
            call = self.described(node, op)
            late = call.late or is_late([node.meta["val"], *_metas(node.all_input_nodes)])
            return bounded.converted(call, convert) if late else convert(call)
        except ModelRefused:
            raise
        except _FAULTS as error:
            raise ModelRefused(
                f"operator {op} ({node.name!r}) has no expression: {error}"
            ) from error

    def branch(self, node: Any) -> Sequence[Value]:
        """The results of `torch.cond`: those of the graph that a condition chooses."""
        condition, then, other, operands = node.args
        flag = self.values[condition]
        sides = [partial(self.side, self.values[graph], operands) for graph in (then, other)]
        if flag.array is not None:
            return sides[0 if flag.array.item() else 1]()
        try:
            return branches.branch(self.builder, "cond", flag, *sides)
        except ValueError as error:
            raise ModelRefused(f"operator {_CONDITIONAL} ({node.name!r}): {error}") from error

    def side(self, module: Any, operands: Sequence[Any]) -> Sequence[Value]:
        """The results of a graph of its own, whose inputs are the operands."""
        with self.extents.inside():
            return self._side(module, operands)

    def _side(self, module: Any, operands: Sequence[Any]) -> Sequence[Value]:
        waiting, result = [*operands], list[Value]()
        for node in module.graph.nodes:
            if node.op == "placeholder":
                source = waiting.pop(0)
                self.values[node] = self.argument(source)
                if source in self.folded:
                    self.folded[node] = self.folded[source]
            elif node.op == "get_attr":
                self.values[node] = getattr(module, node.target)
            elif node.op == "call_function":
                self.call(node)
            else:
                result = [_real(self.values[each], each) for each in node.args[0]]
        return result

    def in_parts(self, node: Any, part: TracedPart) -> Any:
        """The results of a call by what it is made of, which other calls may be made of too."""
        for each in (*part.inputs, *part.nodes):
            self.folded.pop(each, None)
        for own, source in zip(part.inputs, node.all_input_nodes, strict=True):
            self.values[own] = self.values[source]
            if source in self.folded:
                self.folded[own] = self.folded[source]
        for each in part.nodes:
            self.call(each)
        results = [None if each is None else self.values[each] for each in part.outputs]
        several = isinstance(node.meta["val"], list | tuple)
        return results if several else results[0]

    def convert(self, node: Any, op: str) -> Callable[[Call], Any] | None:
        """The program of a call's operator, if there is one."""
        meta = node.meta["val"]
        results = meta if isinstance(meta, list | tuple) else [meta]
        given = [self.values[source] for source in node.all_input_nodes]
        if any(isinstance(value, Complex) for value in given) or any(
            result.dtype.is_complex for result in results if hasattr(result, "dtype")
        ):
            return complex_convert(op, OPERATORS)
        return OPERATORS.get(op)

    def fold(self, node: Any) -> Any:
        """What depends on constants alone, computed by PyTorch."""
        import torch  # noqa: PLC0415

        arguments = torch.fx.node.map_arg(node.args, lambda n: self.folded[n])
        named = torch.fx.node.map_arg(node.kwargs, lambda n: self.folded[n])
        result = node.target(*arguments, **named)
        several = isinstance(result, list | tuple)
        results = result if several else [result]
        if not all(isinstance(each, torch.Tensor) for each in results):
            return None
        if str(node.target) in UNSET:
            result = torch.zeros_like(result)  # what it holds has no meaning
        self.folded[node] = result
        if several:
            return [self.constant(each, node.name) for each in results]
        return self.constant(result, node.name)

    def follows_convolution(self, node: Any) -> bool:
        """Whether a batch normalisation by constants is all that reads a convolution with
        constant weights."""
        before = node.args[0]
        constants = [*node.args[1:5], *before.args[1:3]] if before.op == "call_function" else []
        return (
            str(before.target) == CONVOLUTION
            and len(before.users) == 1
            and not before.args[6]  # transposed
            and all(source is None or source in self.folded for source in constants)
        )

    def folded_batch_norm(self, node: Any) -> Results:
        """The convolution with s = gamma / sqrt(variance + epsilon) in its weights, since
        s (W x + b - mean) + beta = (s W) x + s (b - mean) + beta; in float64."""
        norm = self.described(node, BATCH_NORM)
        call = self.described(node.args[0], CONVOLUTION)
        weight, bias = call["weight"], call["bias"]
        shape = (-1, *(1,) * (weight.rank - 1))
        gamma, beta, mean, variance = (
            np.float64(default) if norm[name] is None else norm[name].array.astype(np.float64)
            for name, default in (
                ("weight", 1),
                ("bias", 0),
                ("running_mean", 0),
                ("running_var", 1),
            )
        )
        scale = gamma / np.sqrt(variance + norm["eps"])
        offset = (0 if bias is None else bias.array.astype(np.float64)) - mean
        scaled = {
            "weight": self.builder.constant(weight.array * scale.reshape(shape), weight.dtype),
            "bias": self.builder.constant(offset * scale + beta, weight.dtype),
        }
        result = OPERATORS[CONVOLUTION](replace(call, arguments={**call.arguments, **scaled}))
        assert isinstance(result, Value)
        return (result, None, None)

    def described(self, node: Any, op: str) -> Call:
        schema = node.target._schema.arguments
        arguments: dict[str, Any] = {
            argument.name: argument.default_value
            for argument in schema
            if argument.has_default_value()
        }
        arguments |= {
            argument.name: self.argument(given)
            for argument, given in zip(schema, node.args, strict=False)
        }
        arguments |= {name: self.argument(given) for name, given in node.kwargs.items()}
        meta = node.meta["val"]
        results = meta if isinstance(meta, list | tuple) else [meta]
        tensors = [result for result in results if hasattr(result, "dtype")]
        comes_up = op in bounded.MAKERS and not self.extents.know(tensors)
        given = [*zip((each.name for each in schema), node.args, strict=False)]
        return Call(
            builder=self.builder,
            op=op,
            name=node.name,
            arguments=arguments,
            dtypes=tuple(dtype_of(tensor.dtype, f"{node.name!r}") for tensor in tensors),
            shapes=tuple(
                tuple(self.extents.bound(extent, node.name) for extent in tensor.shape)
                for tensor in tensors
                if not comes_up
            ),
            used=frozenset(gotten_of(node) if isinstance(meta, list | tuple) else {0}),
            counts=self.extents.counts(tensors[0].shape) if tensors else {},
            late=frozenset(
                name
                for name, argument in [*given, *node.kwargs.items()]
                if any(is_symbolic(meta) for meta in _metas(_nodes_in(argument)))
            ),
        )

    def argument(self, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return [self.argument(part) for part in given]
        return self.values.get(given, given) if hasattr(given, "meta") else given


def _nodes_in(argument: Any) -> list[Any]:
    if isinstance(argument, list | tuple):
        return [node for part in argument for node in _nodes_in(part)]
    return [argument] if hasattr(argument, "meta") else []


def _metas(nodes: Sequence[Any]) -> list[Any]:
    return [node.meta.get("val") for node in nodes]

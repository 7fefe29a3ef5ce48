"""A checked ONNX model, operator by operator, as a graph of expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.version_converter
from onnx.reference import ReferenceEvaluator

from tuner.errors import WorkloadError
from tuner.models.errors import ModelRefused
from tuner.models.evaluator.older_operators import operators_of
from tuner.models.files.given_inputs import typed
from tuner.models.files.input_values import InputValues
from tuner.models.files.onnx_file import QONNX_DOMAINS
from tuner.models.from_onnx import (
    arithmetic,
    bounded,
    control,
    machine_learning,
    microsoft,
    products,
    qonnx,
    recurrent,
    reductions,
    selection,
    sequences,
    shapes,
    signals,
)
from tuner.models.from_onnx.function_opsets import declare_alike
from tuner.models.from_onnx.functions import standard_function
from tuner.models.from_onnx.limits import with_limits
from tuner.models.from_onnx.lookahead import reads_of
from tuner.models.from_onnx.node import (
    ComputedAtRunTime,
    Convert,
    Node,
    Results,
    array_of,
    element_type,
)
from tuner.models.from_onnx.scope import Scope
from tuner.models.graph import LARGEST_FIXED, Array, Graph
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.extents import as_written
from tuner.models.operators.foreseen import in_each, is_foreseen
from tuner.models.operators.stacks import Items, Stack
from tuner.models.operators.values import Value

OPERATORS: Mapping[str, Convert] = {
    **arithmetic.TABLE,
    **products.TABLE,
    **recurrent.TABLE,
    **reductions.TABLE,
    **selection.TABLE,
    **shapes.TABLE,
    **signals.TABLE,
}
# By the domain of operators; other domains have theirs defined by the standard.
TABLES: Mapping[str, Mapping[str, Convert]] = {
    "": OPERATORS,
    "ai.onnx": OPERATORS,
    "ai.onnx.ml": machine_learning.TABLE,
    "com.microsoft": microsoft.TABLE,
    **dict.fromkeys(QONNX_DOMAINS, qonnx.TABLE),
}
# Those of operators that ONNX's evaluator does not have.
_FOREIGN = (microsoft.TABLE, qonnx.TABLE)
# Operators that take formats which kernels do not compute with: to convert them, or only
# their shapes.
CONVERSIONS = (
    "BitCast", "Cast", "CastLike", "DequantizeLinear", "QuantizeLinear", "Shape", "Size",
)  # fmt: skip
# Operators that move elements, of such formats by their bytes.
MOVEMENTS = (
    "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements",
    "GatherND", "Identity", "Pad", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
    "Transpose", "Unsqueeze", "Where",
)  # fmt: skip
_RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_FOLDED_ELEMENTS = 1 << 22  # of an operator's constant inputs that are computed with at import
_FAULTS = (
    ValueError, TypeError, IndexError, KeyError, ArithmeticError, RuntimeError, WorkloadError,
)  # fmt: skip


def graph_of(model: Any, values: InputValues | None = None) -> Graph:
    """The graph of a checked `ModelProto` whose inputs have numbers for extents.

    `values` gives values of inputs by name. Those that must be known at import become
    the inputs' only ones, `Graph.fixed`. Raises ModelRefused naming the operator at
    fault.
    """
    outputs = [value.name for value in model.graph.output]
    return _graph(model, values or {}, outputs, complete=True)


def graph_of_all(model: Any, values: InputValues) -> Graph:
    """The graph with the result of every operator as an output, inner graphs left out.

    Raises as `graph_of` does.
    """
    results = [name for node in model.graph.node for name in node.output if name]
    return _graph(model, values, results, complete=False)


def _graph(model: Any, values: InputValues, outputs: Sequence[str], *, complete: bool) -> Graph:
    given, fixed = typed(values, model.graph), frozenset[str]()
    while True:
        reader = _Reader(model, GraphBuilder(), {name: given[name] for name in fixed})
        try:
            return reader.read(outputs, complete=complete)
        except ComputedAtRunTime as error:
            fixed |= reader.to_be_fixed(error, given)


def without_functions(model: Any) -> Any:
    """The model with its own functions inlined.

    Raises ModelRefused for functions that cannot be, such as one called with too many inputs.
    """
    if not len(model.functions):
        return model
    model.graph.value_info.extend(  # without which functions of other opsets take no constant
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in model.graph.initializer
    )
    declare_alike(model)
    try:
        return onnx.inliner.inline_local_functions(model, convert_version=True)
    except (RuntimeError, ValueError, TypeError, onnx.version_converter.ConvertError) as error:
        text = " ".join(str(error).split())
        raise ModelRefused(
            f"functions of the model cannot be inlined: {text[:300]}; export them in the model's "
            f"opset, or inline them before"
        ) from error


class _Reader:
    """Of a model, or of the body of a function of the standard that a model calls."""

    def __init__(self, model: Any, builder: GraphBuilder, fixed: InputValues | None = None) -> None:
        self.model = model
        self.builder = builder
        self.fixed = fixed or {}
        self.inputs: list[str] = []  # names of the model's
        versions = {entry.domain: entry.version for entry in model.opset_import}
        self.opset = max(versions.get("", 0), versions.get("ai.onnx", 0))
        self.opsets = {**versions, "": self.opset}

    def read(self, outputs: Sequence[str], *, complete: bool) -> Graph:
        """The graph with these values as outputs; without `complete`, those that there are."""
        graph, scope = self.model.graph, Scope()
        initial = {tensor.name for tensor in graph.initializer}
        labels = []
        for value in graph.input:
            if value.name in initial:
                continue
            labels.append(value.name)
            self.inputs.append(value.name)
            kind = value.type.tensor_type
            extents = [dimension.dim_value for dimension in kind.shape.dim]
            element = element_type(kind.elem_type, f"input {value.name!r}")
            tensor = self.builder.input(extents, element.dtype, self.fixed.get(value.name))
            scope[value.name] = replace(tensor, format=element.format)
        self.body(graph, scope)
        for name in outputs:
            if complete and name not in scope:
                fault = f"the model has no {name!r}, which is an output"
                if name in scope.sequences:
                    fault = f"output {name!r} is a sequence; export its tensors as outputs"
                raise ModelRefused(fault)
        made = [name for name in outputs if name in scope]
        formats = {
            name: kept.name for name in (*labels, *made) if (kept := scope[name].format) is not None
        }
        names, written, bounded = as_written(made, [scope[name] for name in made])
        graph = self.builder.graph(written, [*labels, *names], formats)
        return replace(graph, bounded=bounded)

    def to_be_fixed(self, error: ComputedAtRunTime, given: InputValues) -> frozenset[str]:
        """The inputs to fix, so that the value is known at import.

        Raises ModelRefused where some of them have no value, or too large a one.
        """
        needed = [self.inputs[number] for number in self.builder.sources(error.value)]
        missing = [name for name in needed if name not in given]
        if missing or not needed:
            ways = f"; give the value of {missing[0]!r} by --inputs FILE.npz" if missing else ""
            raise ModelRefused(f"{error}{ways}") from error
        for name in needed:
            if given[name].size > LARGEST_FIXED or not np.isfinite(given[name]).all():
                raise ModelRefused(
                    f"{error}, and input {name!r} cannot be fixed at its value: it has "
                    f"{given[name].size} elements, the limit is {LARGEST_FIXED} finite numbers"
                ) from error
        return frozenset(needed)

    def body(self, graph: Any, scope: Scope) -> None:
        for tensor in graph.initializer:
            scope[tensor.name] = self.array(onnx.numpy_helper.to_array(tensor), tensor.name)
        self.nodes(graph.node, scope, [value.name for value in graph.output])

    def nodes(self, nodes: Sequence[Any], scope: Scope, outputs: Sequence[str]) -> None:
        """Notes the results of operators. Those that depend on a branch whose sides no tensors
        stand for are read on each side, and only `outputs` among their results noted."""
        apart: control.SidesApart | None = None
        following: list[Any] = []  # that branch, and what depends on it
        reached: set[str] = set()  # what they make
        for node in nodes:
            if not reached or reached.isdisjoint(reads_of(node)):
                try:
                    scope.note(node.output, self.results(node, scope))
                    continue
                except control.SidesApart as error:
                    apart = apart or error
            following.append(node)
            reached |= {*node.output}
        names = [name for name in outputs if name in reached]
        if apart is not None and names:
            behind = partial(self.behind, following, names, scope)
            scope.note(names, apart.joined(behind, scope.apart))

    def behind(
        self,
        following: Sequence[Any],
        names: Sequence[str],
        scope: Scope,
        results: Sequence[Value | Items],
    ) -> list[Value | Items]:
        """What these names stand for behind operators, of which the first has these results."""
        own = Scope(scope)
        own.apart += 1
        own.note(following[0].output, results)
        self.nodes(following[1:], own, names)
        return [own.item(name) for name in names]

    def array(self, array: Array, name: str) -> Value:
        try:
            return self.builder.constant(array)
        except ModelRefused as error:
            raise ModelRefused(f"{error} ({name!r})") from None

    def results(self, proto: Any, scope: Scope) -> Sequence[Value | Items | None]:
        for name in proto.input:
            if name and name not in scope and name not in scope.sequences:
                raise ModelRefused(
                    f"operator {proto.op_type} reads {name!r}, which nothing before it makes"
                )
        label = proto.name or next((name for name in proto.output if name), "?")
        try:
            attributes = {a.name: _attribute(a) for a in proto.attribute}
        except ValueError as error:  # such as one that refers to an attribute of a function
            text = " ".join(str(error).split())
            raise ModelRefused(
                f"operator {proto.op_type} ({label[:80]!r}) has a damaged attribute: {text[:200]}"
            ) from error
        node = Node(
            builder=self.builder,
            op=proto.op_type,
            name=label,
            inputs=tuple(scope.get(name) if name else None for name in proto.input),
            outputs=tuple(proto.output),
            attributes=attributes,
            opset=self.opset,
            sequences={
                place: scope.sequences[name]
                for place, name in enumerate(proto.input)
                if name in scope.sequences
            },
        )
        try:
            results = self.convert(node, proto, scope)
        except ModelRefused:
            raise
        except _FAULTS as error:
            is_division = isinstance(error, ZeroDivisionError)
            reason = _division_by_zero(node) if is_division else f"has no expression: {error}"
            raise node.refusal(reason) from error
        return (results,) if isinstance(results, Value) else results

    def convert(
        self, node: Node, proto: Any, scope: Scope
    ) -> Results | Sequence[Value | Items | None]:
        rows = TABLES.get(proto.domain, {})
        of_sequence = bool(node.sequences) and node.op != "Loop"
        if of_sequence or (rows is OPERATORS and node.op in sequences.MAKERS):
            return self.of_sequence(node)
        is_foreign = any(rows is table for table in _FOREIGN)
        if bounded.concerns(node) and (is_foreign or node.op in ("If", *control.LOOPS)):
            raise node.late_extent()
        if is_foreign:
            if node.op not in rows:
                raise node.refusal(f"of domain {proto.domain} has no expression yet")
            return rows[node.op](node)
        if node.op == "If":
            return control.branch(node, partial(self.given, node, scope=scope))
        if node.op in control.LOOPS:
            return control.LOOPS[node.op](node, partial(self.inner, node, scope=scope))
        if node.op in _RANDOM:
            raise node.refusal(
                "is random; a model must compute the same each time; make its result an input"
            )
        if node.op == "ConstantOfShape":
            return shapes.constant_of_shape(node)
        rows_known = self.in_each(node, proto)
        if rows_known is not None:
            return rows_known
        arrays = [value.array if value is not None else None for value in node.inputs]
        is_known = all(
            value is None or array is not None
            for value, array in zip(node.inputs, arrays, strict=True)
        )
        size = sum(prod(array.shape) for array in arrays if array is not None)
        has_row = node.op in rows
        if bounded.concerns(node) and has_row:
            return bounded.converted(node, rows[node.op])
        # Constants that are made of integers are computed by their row, which notes these.
        folds = size <= _FOLDED_ELEMENTS and node.op != "DequantizeLinear"
        if is_known and (folds or not has_row):
            try:
                return self.folded(node, proto, scope)
            except _FAULTS:  # the evaluator does not take some valid inputs of GatherElements
                if not has_row:
                    raise
        if has_row:
            results = self.converted(node, rows[node.op])
            return self.limited(node, proto, results) if isinstance(results, Value) else results
        function = standard_function(proto, node.inputs, self.opsets.get(proto.domain, 1))
        if function is None:
            raise node.refusal("has no expression yet")
        return self.expanded(function, node)

    def of_sequence(self, node: Node) -> Sequence[Value | Items]:
        """The tensor or the sequence that an operator makes of a sequence."""
        if node.op not in sequences.OPERATORS:
            raise node.refusal("takes a sequence; only operators of sequences do")
        members = [m.tensors if isinstance(m, Stack) else m for m in node.items]
        kept = {v.format.name for v in (*node.inputs, *members) if v is not None and v.format}
        if kept:
            raise node.refusal(f"takes no {kept.pop()} in sequences; put a Cast before it")
        return [sequences.OPERATORS[node.op](node)]

    def limited(self, node: Node, proto: Any, result: Value) -> Value:
        """The result with what its numbers may be, where they are computed from extents."""

        def evaluate(arrays: Sequence[Array | None]) -> Array:
            feeds = {name: array for name, array in zip(proto.input, arrays, strict=True) if name}
            return _evaluated(proto, feeds, self.model, self.opset)[0]

        if not any(value is not None and value.limits for value in node.inputs):
            return result
        return with_limits(node, result, evaluate)

    def converted(self, node: Node, convert: Convert) -> Results:
        """The results of an operator of the table. Those that only move elements do so with
        the bytes of formats that kernels do not compute with."""
        formats = {value.format for value in node.inputs if value and value.format}
        if not formats or node.op in CONVERSIONS:
            return convert(node)
        (kept, *others) = formats
        if others or node.op not in MOVEMENTS:
            raise node.refusal(f"does not compute with {kept.name}; put a Cast before it")
        results = convert(node)
        if isinstance(results, Value):
            return replace(results, format=kept)
        return [value and replace(value, format=kept) for value in results]

    def expanded(self, function: Any, node: Node) -> Results:
        """What a function of the standard computes; its operators go by the node's name."""
        inputs = zip(function.input, node.inputs, strict=False)
        scope = Scope()
        scope |= {name: value for name, value in inputs if value is not None}
        for inner in function.node:
            inner.name = node.name
        _Reader(function, self.builder).nodes(function.node, scope, function.output)
        return [scope.get(name) for name in function.output]

    def folded(self, node: Node, proto: Any, scope: Scope) -> Results:
        """What depends on constants alone, by ONNX's reference evaluator."""
        feeds = {name: array_of(scope[name]) for name in proto.input if name}
        results = _evaluated(proto, feeds, self.model, self.opset)
        return [self.array(result, node.name) for result in results]

    def in_each(self, node: Node, proto: Any) -> Results | None:
        """What is known in each iteration of a loop around, by ONNX's reference evaluator."""
        if not is_foreseen(node.inputs):
            return None
        run: Callable[[Mapping[str, Array | None]], list[Array]] | None = None

        def compute(arrays: Sequence[Array | None]) -> list[Array]:
            nonlocal run
            feeds = {name: array for name, array in zip(proto.input, arrays, strict=True) if name}
            run = run or _evaluator(proto, feeds, self.model, self.opset)
            return run(feeds)

        try:
            return in_each(node.inputs, compute)
        except _FAULTS:
            return None

    def given(
        self, node: Node, graph: Any, inputs: Sequence[Value], scope: Scope
    ) -> list[Value | Items]:
        """The results of a graph inside of an operator, which sees what is outside."""
        own = Scope(scope)
        initial = {tensor.name for tensor in graph.initializer}
        names = [value.name for value in graph.input if value.name not in initial]
        if node.op == "If":  # whose graphs have none; some tools name what these see outside
            names = [name for name in names if name not in scope]
        if len(names) != len(inputs):
            raise node.refusal(f"gives {len(inputs)} values to a graph with {len(names)} inputs")
        own |= zip(names, inputs, strict=True)
        self.body(graph, own)
        return [own.item(value.name) for value in graph.output]

    def inner(self, node: Node, graph: Any, inputs: Sequence[Value], scope: Scope) -> list[Value]:
        """The results of an iteration, which are tensors."""
        results: list[Value] = []
        given = self.given(node, graph, inputs, scope)
        for output, result in zip(graph.output, given, strict=True):
            if isinstance(result, tuple):
                raise node.refusal(
                    f"gives the sequence {output.name[:80]!r} from a graph inside of it; of "
                    f"sequences a Loop takes those that each iteration inserts one tensor into"
                )
            results.append(result)
        formats = {value.format.name for value in (*inputs, *results) if value.format}
        if formats:
            raise node.refusal(
                f"carries {formats.pop()} to its next iteration; put Casts around it"
            )
        return results


def _division_by_zero(node: Node) -> str:
    """Why an operator was refused that divides by an extent or by a number of dimensions."""
    values = [value for value in node.inputs if value is not None]
    empty = [value for value in values if not value.elements]
    if empty:
        spelt = f"{empty[0].dtype}{list(empty[0].shape)}"
        return f"takes no tensor without elements, as {spelt} is; give the model larger inputs"
    if any(not value.rank for value in values):
        return "names an axis of a tensor that has no dimensions"
    return "has no expression: division by zero"


def _attribute(attribute: Any) -> Any:
    """As Python has it: texts decoded, tensors as arrays, graphs as they are."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [text.decode("utf-8", "replace") for text in value]
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return value


def _evaluated(
    proto: Any, feeds: Mapping[str, Array | None], model: Any, opset: int
) -> list[Array]:
    return _evaluator(proto, feeds, model, opset)(feeds)


def _evaluator(
    proto: Any, feeds: Mapping[str, Array | None], model: Any, opset: int
) -> Callable[[Mapping[str, Array | None]], list[Array]]:
    """Computes one operator of arrays like these."""
    inputs = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in feeds.items()
        if array is not None
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in proto.output if name]
    graph = onnx.helper.make_graph([proto], "constant", inputs, outputs)
    single = onnx.helper.make_model(graph, opset_imports=list(model.opset_import))
    evaluator = ReferenceEvaluator(single, new_ops=operators_of(opset))

    def run(given: Mapping[str, Array | None]) -> list[Array]:
        with np.errstate(all="ignore"):  # infinities and NaN are values like others
            return [np.asarray(result) for result in evaluator.run(None, dict(given))]

    return run

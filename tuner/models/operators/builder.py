"""A model's program, recorded operator by operator as a graph of expressions.

A node's result is stored in whatever order of dimensions suits it; who reads it by its
logical indices need not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from tuner.models.errors import ModelRefused
from tuner.models.graph import Array, Graph
from tuner.models.nodes import Control, Node, reads_of
from tuner.models.operators.formats import FORMATS
from tuner.models.operators.stages import Body, Points, foldable, widened
from tuner.models.operators.values import COMPARED_BYTES, Value
from tuner.workload.arrays import numpy_dtype
from tuner.workload.dtypes import DTYPE_BYTES, DType
from tuner.workload.expression import (
    Const,
    Expression,
    Reducer,
    Scalar,
    Stage,
    Tensor,
    Var,
    Within,
    reads,
)
from tuner.workload.facts import fact_error
from tuner.workload.reference import evaluate
from tuner.workload.renaming import anonymous
from tuner.workload.scalar_operators import identity

MOST_ELEMENTS = 1 << 28  # of a tensor of the model


@dataclass(slots=True)
class _Kernel:
    """Stages on their way to one expression."""

    name: str
    stages: list[Stage] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Recorded:
    """Nodes that are recorded for the body of a scan or a branch."""

    nodes: list[Node] = field(default_factory=list)
    hoisted: list[Node] = field(default_factory=list)  # those that go before the scan


class GraphBuilder:
    """Collects inputs, constants and nodes. What depends on constants alone is computed at
    once; a node that equals an earlier one is that one."""

    def __init__(self) -> None:
        self._inputs: list[Tensor] = []
        self._fixed: dict[str, Array] = {}
        # Of inputs that are indices: where their elements must lie.
        self.ranges: dict[str, Within] = {}
        self._constants: dict[str, Array] = {}
        # The array is kept beside the name, so that its id stays its own.
        self._constant_names: dict[tuple[Any, ...], tuple[str, Array]] = {}
        self._nodes: list[Node] = []
        self._aliases: dict[str, str] = {}
        self._shapes: dict[str, Tensor] = {}
        self._tensors: dict[str, Tensor] = {}
        self._copies: dict[tuple[Any, ...], Value] = {}
        self._equal: dict[tuple[Any, ...], str] = {}
        self._read_by: dict[str, tuple[str, ...]] = {}  # what each tensor is computed from
        self._stages: dict[str, Stage] = {}
        self._same: dict[str, str] = {}  # result of a node of several stages -> an equal one
        self._kernel: _Kernel | None = None
        self._count = 0

    # --- values

    def input(self, shape: Sequence[int], dtype: DType, fixed: Array | None = None) -> Value:
        """An input of the model. One that is fixed at a value is a constant to all that
        reads it."""
        tensor = Tensor(name=f"in{len(self._inputs)}", shape=tuple(shape), dtype=dtype)
        self._inputs.append(tensor)
        self._tensors[tensor.name] = tensor
        if fixed is not None:
            self._fixed[tensor.name] = np.ascontiguousarray(fixed).reshape(tensor.shape)
            return self.constant(fixed.reshape(tensor.shape), dtype)
        if 0 in shape:  # nothing can be read of it
            return self.constant(np.empty(tensor.shape), dtype)
        value = self._value(tensor, tensor.shape, range(len(shape)))
        # Expressions read tensors with dimensions.
        return value if shape else self.alias(value, (1,)).view((), lambda: (0,))

    def sources(self, value: Value) -> list[int]:
        """The positions of the inputs that a value is computed from, ascending."""
        waiting, visited = [value.tensor], set[str]()
        while waiting:
            name = waiting.pop()
            if name in visited:
                continue
            visited.add(name)
            waiting += [self._aliases[name]] if name in self._aliases else []
            waiting += self._read_by.get(name, ())
        return [number for number, tensor in enumerate(self._inputs) if tensor.name in visited]

    def require(self, value: Value, within: Within) -> None:
        """Notes where the elements of a value must lie, if it is all of an input."""
        name = self.root(value.tensor)
        if value.array is None and self.is_input(value) and value.is_all_of_its_tensor:
            before = self.ranges.get(name, within)
            both = Within(start=max(before.start, within.start), stop=min(before.stop, within.stop))
            if fact_error(replace(self._tensors[name], fact=both)) is None:
                self.ranges[name] = both

    def constant(self, array: Any, dtype: DType | None = None) -> Value:
        array = np.asarray(array)
        name = dtype or array.dtype.name
        if name in FORMATS:
            kept = FORMATS[name]
            return replace(self.constant(kept.stored(array), kept.storage), format=kept)
        if name not in DTYPE_BYTES:
            raise ModelRefused(f"a constant is {name}; known are {', '.join(DTYPE_BYTES)}")
        return Value(
            builder=self,
            shape=array.shape,
            dtype=name,
            array=array.astype(numpy_dtype(name), copy=False),
        )

    def stored(self, value: Value) -> Value:
        """The same value with a stored tensor: constants get one when they are read first."""
        if value.array is None:
            same = self._same.get(value.tensor)
            return value if same is None else replace(value, tensor=same)
        array = np.ascontiguousarray(value.array).reshape(value.shape or (1,))
        small = array.nbytes <= COMPARED_BYTES
        key = (array.tobytes(), array.shape, value.dtype) if small else (id(value.array),)
        if key not in self._constant_names:
            self._count += 1
            name = f"c{self._count}"
            self._constants[name] = array
            self._tensors[name] = Tensor(name=name, shape=array.shape, dtype=value.dtype)
            self._constant_names[key] = (name, value.array)
        tensor = self._tensors[self._constant_names[key][0]]
        return self._value(tensor, value.shape, range(value.rank))

    def stored_copy(self, value: Value, order: tuple[int, ...]) -> Value:
        if value.array is not None:
            return value
        if value.order == order:
            return value
        if value.order is not None and _longer(value, value.order) == _longer(value, order):
            plain = self.alias(value, [value.shape[number] for number in order])
            return replace(
                plain, shape=value.shape, access=tuple(Var(str(number)) for number in order)
            )
        key = (value.tensor, value.shape, value.access, order)
        if key not in self._copies:
            self._copies[key] = self.compute(
                "copy", value.shape, lambda *place: value[place], dtype=value.dtype, order=order
            )
        return self._copies[key]

    def _value(self, tensor: Tensor, shape: tuple[int, ...], order: Sequence[int]) -> Value:
        access: tuple[Scalar, ...] = tuple(Var(str(number)) for number in order)
        return Value(
            builder=self,
            shape=shape,
            dtype=tensor.dtype,
            tensor=tensor.name,
            storage=tensor.shape,
            access=access or (Const(0, "int64"),),
        )

    def alias(self, value: Value, storage: Sequence[int]) -> Value:
        """The bytes of a stored value under another shape, in the order that they stand."""
        self._count += 1
        name = f"r{self._count}"
        self._aliases[name] = self._aliases.get(value.tensor, value.tensor)
        tensor = Tensor(name=name, shape=tuple(storage), dtype=value.dtype)
        self._shapes[name] = self._tensors[name] = tensor
        return self._value(tensor, tensor.shape, range(len(tensor.shape)))

    def is_input(self, value: Value) -> bool:
        """Whether a value is a model's input, perhaps under another shape."""
        return any(tensor.name == self.root(value.tensor) for tensor in self._inputs)

    # --- nodes

    def compute(
        self,
        name: str,
        shape: Sequence[int],
        body: Body,
        *,
        dtype: DType | None = None,
        order: Sequence[int] | None = None,
    ) -> Value:
        """`result[i] = body(*i)`, of dtype `dtype` (default: that of the body), stored in
        the given order of dimensions."""
        points = Points(
            shape=tuple(shape),
            body=body,
            dtype=dtype,
            order=tuple(range(len(shape)) if order is None else order),
        )
        return self._stage(name, points)

    def reduce(
        self,
        name: str,
        reducer: Reducer,
        shape: Sequence[int],
        over: Sequence[int],
        body: Body,
        *,
        dtype: DType | None = None,
        order: Sequence[int] | None = None,
    ) -> Value:
        """`result[i]` is the sum, product, greatest or least of `body(*i, *r)` for r in
        `over`, carried in the dtype of the body. Extents of 1 in `over` make no loop."""
        points = Points(
            shape=tuple(shape),
            over=tuple(over),
            body=body,
            reducer=reducer,
            dtype=dtype,
            order=tuple(range(len(shape)) if order is None else order),
        )
        return self._stage(name, points)

    @contextmanager
    def kernel(self, name: str) -> Iterator[None]:
        """What is computed inside is one node; its last stage is the result.

        The others are kept in the dtype that they are computed in, not in float16 or
        bfloat16: sums of squares are beyond the greatest float16 soon.
        """
        if self._kernel is not None:
            yield
            return
        self._kernel = _Kernel(name)
        try:
            yield
            stages = widened(self._kernel.stages)
        finally:
            self._kernel = None
        if stages:
            tensor = self._add(name, stages)
            if tensor.name != stages[-1].name:
                self._same[stages[-1].name] = tensor.name

    @contextmanager
    def body(self) -> Iterator[Recorded]:
        """What is recorded inside belongs to a body: it is neither a node of the graph nor
        equal to a later one. What is hoisted becomes a node of the graph."""
        recorded = Recorded()
        nodes, equal, copies = self._nodes, dict(self._equal), dict(self._copies)
        self._nodes = recorded.nodes
        try:
            yield recorded
        finally:
            nodes += recorded.hoisted
            self._nodes = nodes
            self._equal, self._copies = equal, copies

    def append(self, node: Control) -> None:
        """Adds a node with bodies, whose results are tensors made by `named`."""
        self._nodes.append(node)

    def note_sources(self, name: str, *names: str) -> None:
        """Notes what a tensor made by `named` is computed from."""
        self._read_by[name] = names

    def part(self, nodes: Sequence[Node], results: Sequence[str]) -> Graph:
        """Some nodes as a graph, whose inputs are what they read of others."""
        own = {name for node in nodes for name in node.outputs}
        outside = {read for node in nodes for read in reads_of(node)} - own
        return Graph(
            inputs=tuple(self._tensors[other] for other in sorted(outside)),
            constants={},
            nodes=tuple(nodes),
            outputs=tuple(results),
            aliases=self._aliases,
            shapes=self._shapes,
        )

    def tensor(self, name: str) -> Tensor:
        """A tensor that was recorded. Raises KeyError for any other name."""
        return self._tensors[name]

    def definition(self, name: str) -> Stage | Array | None:
        """The stage that computes a tensor, or the constant that it is; None of any other."""
        return self._constants.get(name, self._stages.get(name))

    def root(self, name: str) -> str:
        """The name of the tensor that holds the bytes: an alias resolved."""
        return self._aliases.get(name, name)

    def plain(self, value: Value) -> Value:
        """The value stored as a whole tensor with its dimensions in order."""
        return self.stored(self.stored(value).materialized())

    def shaped(self, value: Value) -> Value:
        """The same as a tensor of the value's own shape."""
        plain = self.plain(value)
        shape = value.shape or (1,)
        return plain if plain.storage == shape else self.alias(plain, shape)

    def named(self, kind: str, shape: Sequence[int], dtype: DType) -> Value:
        """A new tensor that no expression writes."""
        _check_size(kind, shape)
        self._count += 1
        tensor = Tensor(name=f"{kind}{self._count}", shape=tuple(shape) or (1,), dtype=dtype)
        self._tensors[tensor.name] = tensor
        return self._value(tensor, tuple(shape), range(len(shape)))

    def copied(self, value: Value) -> Value:
        """A copy of the value that is equal to no other node."""
        equal, self._equal = self._equal, {}
        copy = self.compute("copy", value.shape, lambda *i: value[i], dtype=value.dtype)
        self._equal = equal
        return copy

    def _stage(self, label: str, points: Points) -> Value:
        """The value that a stage computes, by itself or within a kernel."""
        shape, order = points.shape, points.order
        _check_size(label, shape)
        elem = points.elem()
        stored = points.dtype or elem.dtype
        if 0 in shape or 0 in points.over:
            nothing = identity(points.reducer, stored).value if points.reducer else 0
            return self.constant(np.broadcast_to(nothing, shape), stored)
        self._count += 1
        stage = points.stage(f"t{self._count}", elem, self._tensors)
        if self._kernel is not None:
            self._kernel.stages.append(stage)
            self._tensors[stage.name] = stage.tensor
            return self._value(stage.tensor, shape, order)
        tensor = self._add(label, (stage,))
        if tensor.name in self._constants:
            array = self._constants[tensor.name].reshape([shape[number] for number in order])
            return self.constant(np.transpose(array, np.argsort(order)), stored)
        return self._value(tensor, shape, order)

    def _add(self, label: str, stages: tuple[Stage, ...]) -> Tensor:
        """The tensor of a new node, or of an equal one that is there."""
        own = {stage.name for stage in stages}
        names = dict.fromkeys(read.tensor for stage in stages for read in reads(stage.body))
        inputs = tuple(self._tensors[name] for name in names if name not in own)
        result = stages[-1]
        key = (inputs, anonymous(stages))
        if key in self._equal:
            return self._tensors[self._equal[key]]
        node = Expression(name=label, inputs=inputs, stages=stages, outputs=(result.name,))
        self._tensors[result.name] = result.tensor
        self._read_by[result.name] = tuple(names)
        self._stages |= {stage.name: stage for stage in stages}
        self._equal[key] = result.name
        if all(tensor.name in self._constants for tensor in inputs) and foldable(node):
            self._constants[result.name] = self._evaluated(node)
        else:
            if not inputs:
                raise ModelRefused(f"operator {label} reads nothing and is too large to be stored")
            self._nodes.append(node)
        return result.tensor

    def _evaluated(self, node: Expression) -> Array:
        given = {tensor.name: self._constants[tensor.name] for tensor in node.inputs}
        (name,) = node.outputs
        return np.ascontiguousarray(
            evaluate(node, given)[name].astype(numpy_dtype(node.tensor(name).dtype))
        )

    # --- the whole

    def graph(
        self,
        outputs: Sequence[Value],
        labels: Sequence[str],
        formats: Mapping[str, str] | None = None,
    ) -> Graph:
        """The graph with these outputs, each stored with its dimensions in order."""
        names = []
        for value in outputs:
            plain = self.plain(value)
            same = plain.storage == value.shape
            names.append(plain.tensor if same else self.alias(plain, value.shape).tensor)
        return Graph(
            inputs=tuple(self._inputs),
            constants=self._constants,
            nodes=tuple(self._nodes),
            outputs=tuple(names),
            aliases=self._aliases,
            shapes=self._shapes,
            labels=tuple(labels),
            fixed=self._fixed,
            formats=formats or {},
        )


def _check_size(label: str, shape: Sequence[int]) -> None:
    if prod(shape) > MOST_ELEMENTS:
        raise ModelRefused(
            f"operator {label} makes a tensor of {prod(shape)} elements, the limit is "
            f"{MOST_ELEMENTS}"
        )


def _longer(value: Value, order: Sequence[int]) -> list[int]:
    """The dimensions of more than one element, in their order."""
    return [number for number in order if value.shape[number] > 1]

"""A model's program, recorded operator by operator as a graph of expressions.

Values have a logical shape and a view of the tensor that holds them: transposing, slicing
and broadcasting make another view and no node. A node's result is stored in whatever order
of dimensions suits it; who reads it by its logical indices need not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from tuner.models.errors import ModelRefused
from tuner.models.fusion import fuse
from tuner.models.graph import Array, Graph
from tuner.models.operators.scalars import Elem, Operand, clamp, constant, index, iterator
from tuner.models.scan import Node, Scan, Window, reads_of
from tuner.workload.arrays import numpy_dtype
from tuner.workload.bounds import without_redundant_padding
from tuner.workload.expression import (
    DTYPE_BYTES,
    Axis,
    Binary,
    Cast,
    Const,
    DType,
    Expression,
    Read,
    Reducer,
    Scalar,
    Stage,
    Tensor,
    Unary,
    Var,
    reads,
    rename_reads,
    substitute,
)
from tuner.workload.reference import evaluate
from tuner.workload.scalar_operators import identity
from tuner.workload.terms import COMPUTED_IN

MOST_ELEMENTS = 1 << 28  # of a tensor of the model
_FOLDED_ELEMENTS = 1 << 26  # of a result computed at import; what is larger is computed at run time
_FOLDED_OPERATIONS = 1 << 30  # of all points of such a result together

_COMPARED_BYTES = 1 << 12  # of constants that are one where their contents are equal

Body = Callable[..., Elem]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor of the model as operators see it.

    `access` gives the indices into the stored tensor, with `Var("0")`, `Var("1")`, ... for
    the logical indices. A constant is an array (`array`), and has no stored tensor until
    a node reads it.
    """

    builder: GraphBuilder
    shape: tuple[int, ...]
    dtype: DType
    tensor: str = ""
    storage: tuple[int, ...] = ()
    access: tuple[Scalar, ...] = ()
    array: Array | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def computed_in(self) -> DType:
        return COMPUTED_IN.get(self.dtype, self.dtype)

    def __getitem__(self, indices: Operand | tuple[Operand, ...]) -> Elem:
        """The element at logical indices, which must lie inside."""
        return self._read(indices, pad=None)

    def guarded(self, *indices: Operand) -> Elem:
        """The element at logical indices, and some value of no meaning outside. For the
        branches of a condition."""
        if self.dtype == "bool":  # has no padding
            inside = (
                _clamped(index(place), extent)
                for place, extent in zip(indices, self.shape, strict=True)
            )
            return self._read(tuple(inside), pad=None)
        return self._read(indices, pad=0)

    def padded(self, *indices: Operand, pad: float) -> Elem:
        """The element at logical indices, `pad` outside of the tensor."""
        return (self if self.whole else self.materialized())._read(indices, pad=pad)

    def _read(self, indices: Operand | Sequence[Operand], pad: float | None) -> Elem:
        places = indices if isinstance(indices, tuple) else (indices,)
        if len(places) != self.rank:
            raise IndexError(f"{len(places)} indices for a tensor of rank {self.rank}")
        number = 0 if not self.elements else self._everywhere()
        if number is not None:
            return constant(number, self.dtype)
        value = self.builder.stored(self)
        logical: dict[str, Scalar] = {
            str(number): index(place).node for number, place in enumerate(places)
        }
        inside = tuple(_folded(substitute(place, logical)) for place in value.access)
        padding = None
        if pad is not None:
            number = constant(pad, value.dtype).constant
            padding = Const(number if number is not None else 0, value.dtype)
        read = Read(value.tensor, inside, padding)
        wide = value.computed_in
        return Elem(read if wide == value.dtype else Cast(wide, read), wide)

    def _everywhere(self) -> float | int | bool | None:
        """The number that a constant has at all its places; None for any other."""
        if self.array is None or not self.array.size:
            return None
        spread = not any(self.array.strides)  # one number in memory
        if not spread and self.array.size > _COMPARED_BYTES:
            return None
        first = self.array.reshape(-1)[0]
        return first.item() if spread or (self.array == first).all() else None

    @property
    def order(self) -> tuple[int, ...] | None:
        """Which logical dimension each stored one is, where the view only permutes; units
        that were added or dropped do not count. None for any other view."""
        order = []
        for place, extent in zip(self.access, self.storage, strict=True):
            if isinstance(place, Var) and self.shape[int(place.name)] == extent:
                order.append(int(place.name))
            elif not (isinstance(place, Const) and extent == 1):
                return None
        missing = set(range(self.rank)) - set(order)
        if len(set(order)) != len(order) or any(self.shape[number] != 1 for number in missing):
            return None
        return tuple(order)

    @property
    def whole(self) -> bool:
        """Whether logical indices lie outside just where the stored tensor's do."""
        order = self.order
        return (
            self.array is None and order is not None and len(order) == len(self.access) == self.rank
        )

    def view(self, shape: Sequence[int], access: Callable[..., Sequence[Operand]]) -> Value:
        """The value whose element at indices i is this one's at `access(*i)`, which lies
        inside for all of them."""
        if 0 in shape:
            return self.builder.constant(np.empty(tuple(shape)), self.dtype)
        if self.array is not None:
            raise TypeError("a constant's view is another array")
        places = access(*(iterator(str(number)) for number in range(len(shape))))
        logical: dict[str, Scalar] = {
            str(number): index(place).node for number, place in enumerate(places)
        }
        return replace(
            self,
            shape=tuple(shape),
            access=tuple(_folded(substitute(place, logical)) for place in self.access),
        )

    def materialized(self, order: Sequence[int] | None = None) -> Value:
        """The value stored as a tensor of its own, in the given order of its dimensions
        (default: as they are)."""
        return self.builder.stored_copy(self, tuple(order or range(self.rank)))


@dataclass(slots=True)
class _Kernel:
    """Stages on their way to one expression."""

    name: str
    stages: list[Stage] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """What a builder knew before the body of a scan, which must not be known after it."""

    nodes: int
    equal: dict[tuple[Any, ...], str]
    copies: dict[tuple[Any, ...], Value]


class GraphBuilder:
    """Collects inputs, constants and nodes. What depends on constants alone is computed at
    once; a node that equals an earlier one is that one."""

    def __init__(self) -> None:
        self._inputs: list[Tensor] = []
        self._fixed: dict[str, Array] = {}
        self._constants: dict[str, Array] = {}
        # The array is kept beside the name, so that its id stays its own.
        self._constant_names: dict[tuple[Any, ...], tuple[str, Array]] = {}
        self._nodes: list[Node] = []
        self._aliases: dict[str, str] = {}
        self._shapes: dict[str, Tensor] = {}
        self._tensors: dict[str, Tensor] = {}
        self._copies: dict[tuple[Any, ...], Value] = {}
        self._equal: dict[tuple[Any, ...], str] = {}
        self._same: dict[str, str] = {}  # result of a node of several stages -> an equal one
        self._kernel: _Kernel | None = None
        self._count = 0

    # --- values

    def input(self, shape: Sequence[int], dtype: DType, fixed: Array | None = None) -> Value:
        """An input of the model. One that is fixed at a value is a constant to all that
        reads it."""
        tensor = Tensor(name=f"in{len(self._inputs)}", shape=tuple(shape) or (1,), dtype=dtype)
        self._inputs.append(tensor)
        self._tensors[tensor.name] = tensor
        if fixed is not None:
            self._fixed[tensor.name] = np.ascontiguousarray(fixed).reshape(tensor.shape)
            return self.constant(fixed.reshape(tuple(shape)), dtype)
        if 0 in shape:  # nothing can be read of it
            return self.constant(np.empty(tuple(shape)), dtype)
        return self._value(tensor, tuple(shape), range(len(shape)))

    def sources(self, value: Value) -> list[int]:
        """The positions of the inputs that a value is computed from, ascending."""
        makers = {name: node for node in self._nodes for name in node.outputs}
        waiting, visited = [value.tensor], set[str]()
        while waiting:
            name = waiting.pop()
            if name in visited:
                continue
            visited.add(name)
            waiting += [self._aliases[name]] if name in self._aliases else []
            waiting += reads_of(makers[name]) if name in makers else []
        return [number for number, tensor in enumerate(self._inputs) if tensor.name in visited]

    def constant(self, array: Any, dtype: DType | None = None) -> Value:
        array = np.asarray(array)
        name = dtype or array.dtype.name
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
        small = array.nbytes <= _COMPARED_BYTES
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
        return self._stage(name, tuple(shape), (), body, None, dtype, order)

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
        return self._stage(name, tuple(shape), tuple(over), body, reducer, dtype, order)

    @contextmanager
    def kernel(self, name: str) -> Iterator[None]:
        """What is computed inside is one node; its last stage is the result."""
        if self._kernel is not None:
            yield
            return
        self._kernel = _Kernel(name)
        try:
            yield
            stages = tuple(self._kernel.stages)
        finally:
            self._kernel = None
        if stages:
            tensor = self._add(name, stages)
            if tensor.name != stages[-1].name:
                self._same[stages[-1].name] = tensor.name

    def scan(
        self,
        name: str,
        count: int,
        inputs: Sequence[Value],
        states: Sequence[Value],
        body: Callable[..., tuple[Sequence[Value], Sequence[Value]]],
        *,
        reverse: bool = False,
    ) -> tuple[list[Value], list[Value]]:
        """States that each iteration computes from those of the one before, and from a
        slice along the first dimension of each input.

        `body(*slices, *states)` gives the new states and other results. Returned are the
        states of all iterations with those they begin from, `[count + 1, ...]`, and the
        other results, `[count, ...]`, both in the order of the iterations. With `reverse`
        the last slices come first.
        """
        start, step = (count - 1, -1) if reverse else (0, 1)
        wholes = [self.stored(self.stored(value).materialized()) for value in inputs]
        begins = [self.stored(self.stored(value).materialized()) for value in states]
        begin = _Recorded(
            nodes=len(self._nodes), equal=dict(self._equal), copies=dict(self._copies)
        )
        windows: dict[str, Window] = {}
        slices = [
            self._window(windows, value.tensor, value.shape[1:], value.dtype, start, step)
            for value in wholes
        ]
        before = []
        sequences = []
        for value in begins:
            tensor = self._sequence(count + 1, value.shape, value.dtype)
            sequences.append(tensor)
            before.append(self._window(windows, tensor.name, value.shape, value.dtype, 0, 1))
        after, results = body(*slices, *before)
        kept = []
        for number, value in enumerate([*after, *results]):
            is_state = number < len(states)
            if not is_state:
                sequences.append(self._sequence(count, value.shape, value.dtype))
            kept.append(self._own_result(value, begin.nodes, windows))
            windows[kept[-1].tensor] = Window(
                tensor=sequences[number].name, start=int(is_state), step=1
            )
        self._close_scan(name, count, begin, windows, sequences, begins, kept)
        values = [
            self._value(tensor, tensor.shape, range(len(tensor.shape))) for tensor in sequences
        ]
        return values[: len(states)], values[len(states) :]

    def _window(
        self,
        windows: dict[str, Window],
        tensor: str,
        shape: tuple[int, ...],
        dtype: DType,
        start: int,
        step: int,
    ) -> Value:
        self._count += 1
        made = Tensor(name=f"w{self._count}", shape=shape or (1,), dtype=dtype)
        self._tensors[made.name] = made
        windows[made.name] = Window(tensor=tensor, start=start, step=step)
        return self._value(made, shape, range(len(shape)))

    def _sequence(self, count: int, shape: tuple[int, ...], dtype: DType) -> Tensor:
        self._count += 1
        tensor = Tensor(name=f"q{self._count}", shape=(count, *shape), dtype=dtype)
        self._tensors[tensor.name] = tensor
        return tensor

    def _own_result(self, value: Value, first: int, windows: Mapping[str, Window]) -> Value:
        """The value as the result of a node of the body that no other result is, with its
        dimensions in order."""
        plain = self.stored(self.stored(value).materialized())
        own = {name for node in self._nodes[first:] for name in node.outputs}
        if plain.tensor in own - windows.keys() and plain.storage == (value.shape or (1,)):
            return plain
        equal, self._equal = self._equal, {}  # a copy of its own
        copy = self.compute("copy", value.shape, lambda *i: value[i], dtype=value.dtype)
        self._equal = equal
        if copy.array is not None:
            raise ModelRefused("a state that does not depend on the one before it")
        return copy

    def _close_scan(
        self,
        name: str,
        count: int,
        begin: _Recorded,
        windows: dict[str, Window],
        sequences: Sequence[Tensor],
        begins: Sequence[Value],
        kept: Sequence[Value],
    ) -> None:
        body = self._nodes[begin.nodes :]
        del self._nodes[begin.nodes :]
        self._equal, self._copies = begin.equal, begin.copies
        own = {name for node in body for name in node.outputs}
        outside = {read for node in body for read in reads_of(node)} - own
        inner = Graph(
            inputs=tuple(self._tensors[other] for other in sorted(outside)),
            constants={},
            nodes=tuple(body),
            outputs=tuple(value.tensor for value in kept),
            aliases=self._aliases,
            shapes=self._shapes,
        )
        fused = fuse(inner)
        alive = {read for node in fused.nodes for read in reads_of(node)}
        alive |= {value.tensor for value in kept}
        roots = {self._aliases.get(other, other) for other in alive}
        used = {other: window for other, window in windows.items() if other in roots}
        self._nodes.append(
            Scan(
                name=name,
                count=count,
                body=tuple(node for node in fused.nodes if isinstance(node, Expression)),
                windows=used,
                shapes={other: self._tensors[other] for other in used},
                sequences=tuple(sequences),
                initial={
                    tensor.name: value.tensor
                    for tensor, value in zip(sequences, begins, strict=False)
                },
            )
        )

    def _stage(
        self,
        label: str,
        shape: tuple[int, ...],
        over: tuple[int, ...],
        body: Body,
        reducer: Reducer | None,
        dtype: DType | None,
        order: Sequence[int] | None,
    ) -> Value:
        if prod(shape) > MOST_ELEMENTS:
            raise ModelRefused(
                f"operator {label} makes a tensor of {prod(shape)} elements, the limit is "
                f"{MOST_ELEMENTS}"
            )
        order = tuple(range(len(shape)) if order is None else order)
        longer = [number for number, extent in enumerate(over) if extent > 1]
        elem = body(
            *(iterator(f"i{number}") for number in range(len(shape))),
            *(
                iterator(f"r{number}") if number in longer else constant(0, "int64")
                for number in range(len(over))
            ),
        )
        stored = dtype or elem.dtype
        if 0 in shape or 0 in over:
            nothing = identity(reducer, stored).value if reducer else 0
            return self.constant(np.broadcast_to(nothing, shape), stored)
        axes = tuple(Axis(name=f"i{number}", extent=shape[number]) for number in order)
        if not axes:
            axes = (Axis(name="u", extent=1),)
        reduce_axes = tuple(Axis(name=f"r{number}", extent=over[number]) for number in longer)
        self._count += 1
        stage = Stage(
            name=f"t{self._count}",
            axes=axes,
            body=self._unpadded(elem.node, axes, reduce_axes),
            dtype=stored,
            reduce_axes=reduce_axes,
            reducer=reducer if longer else None,
            accumulator=elem.dtype,
        )
        if self._kernel is not None:
            self._kernel.stages.append(stage)
            self._tensors[stage.name] = stage.tensor
            return self._value(stage.tensor, shape, order)
        tensor = self._add(label, (stage,))
        if tensor.name in self._constants:
            array = self._constants[tensor.name].reshape([shape[number] for number in order])
            return self.constant(np.transpose(array, np.argsort(order)), stored)
        return self._value(tensor, shape, order)

    def _unpadded(self, body: Scalar, axes: Sequence[Axis], reduce_axes: Sequence[Axis]) -> Scalar:
        extents = {axis.name: axis.extent for axis in (*axes, *reduce_axes)}
        return without_redundant_padding(body, extents, self._tensors)

    def _add(self, label: str, stages: tuple[Stage, ...]) -> Tensor:
        """The tensor of a new node, or of an equal one that is there."""
        own = {stage.name for stage in stages}
        names = dict.fromkeys(read.tensor for stage in stages for read in reads(stage.body))
        inputs = tuple(self._tensors[name] for name in names if name not in own)
        result = stages[-1]
        key = (inputs, _anonymous(stages))
        if key in self._equal:
            return self._tensors[self._equal[key]]
        node = Expression(name=label, inputs=inputs, stages=stages, outputs=(result.name,))
        self._tensors[result.name] = result.tensor
        self._equal[key] = result.name
        if all(tensor.name in self._constants for tensor in inputs) and _foldable(node):
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

    def graph(self, outputs: Sequence[Value], labels: Sequence[str]) -> Graph:
        """The graph with these outputs, each stored with its dimensions in order."""
        names = []
        for value in outputs:
            plain = self.stored(value).materialized()
            plain = self.stored(plain)
            name = plain.tensor
            if plain.storage != value.shape:
                name = self.alias(plain, value.shape).tensor
            names.append(name)
        return Graph(
            inputs=tuple(self._inputs),
            constants=self._constants,
            nodes=tuple(self._nodes),
            outputs=tuple(names),
            aliases=self._aliases,
            shapes=self._shapes,
            labels=tuple(labels),
            fixed=self._fixed,
        )


def _longer(value: Value, order: Sequence[int]) -> list[int]:
    """The dimensions of more than one element, in their order."""
    return [number for number in order if value.shape[number] > 1]


def _foldable(node: Expression) -> bool:
    return (
        sum(stage.points for stage in node.stages) <= _FOLDED_OPERATIONS
        and max(prod(stage.tensor.shape) for stage in node.stages) <= _FOLDED_ELEMENTS
    )


def _anonymous(stages: Sequence[Stage]) -> tuple[Any, ...]:
    """The stages without the names that they were given when they were recorded."""
    names = {stage.name: f"s{number}" for number, stage in enumerate(stages)}

    def plain(stage: Stage) -> Stage:
        return replace(stage, name=names[stage.name], body=rename_reads(stage.body, names))

    return tuple(plain(stage) for stage in stages)


def _clamped(place: Elem, extent: int) -> Elem:
    return clamp(place, 0, extent - 1)


def _folded(place: Scalar) -> Scalar:
    """Index arithmetic without neutral operands, after a substitution."""
    match place:
        case Binary(op=op, lhs=lhs, rhs=rhs):
            left, right = Elem(_folded(lhs), "int64"), Elem(_folded(rhs), "int64")
            match op:
                case "add":
                    return (left + right).node
                case "sub":
                    return (left - right).node
                case "mul":
                    return (left * right).node
                case "floordiv":
                    return (left // right).node
                case "floormod":
                    return (left % right).node
                case _:
                    return Binary(op, left.node, right.node)
        case Unary(op=unary_op, arg=arg):
            return Unary(unary_op, _folded(arg))
        case _:
            return place

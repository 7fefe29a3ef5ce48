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
from tuner.models.fusion import fuse, with_pairs
from tuner.models.graph import Array, Graph
from tuner.models.nodes import Branch, Node, Scan, Side, State, Window, reads_of
from tuner.models.operators.formats import FORMATS, Format
from tuner.models.operators.scalars import Elem, Operand, clamp, constant, index, iterator, where
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
    rewrite,
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
    format: Format | None = None  # of the numbers, where `dtype` only holds them

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
        if first != first:  # the notation has no literal for NaN
            return None
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


@dataclass(slots=True, kw_only=True)
class _Inner:
    """Nodes that are recorded for the body of a scan or a branch."""

    first: int  # place of the first of them among the builder's nodes
    hoisted: list[Node] = field(default_factory=list)  # those that go before the scan


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
        self._read_by: dict[str, tuple[str, ...]] = {}  # what each tensor is computed from
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
        waiting, visited = [value.tensor], set[str]()
        while waiting:
            name = waiting.pop()
            if name in visited:
                continue
            visited.add(name)
            waiting += [self._aliases[name]] if name in self._aliases else []
            waiting += self._read_by.get(name, ())
        return [number for number, tensor in enumerate(self._inputs) if tensor.name in visited]

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
            stages = _widened(self._kernel.stages)
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
        backward: Sequence[bool] = (),
        backward_results: Sequence[bool] = (),
        conditional: bool = False,
    ) -> tuple[list[Value], list[Value]]:
        """States that each iteration computes from those of the one before, and from a
        slice along the first dimension of each input.

        `body(*slices, *states)` gives the new states and other results. Returned are the
        last states, and the results of all iterations, `[count, ...]`. Of inputs and
        results that are `backward` the last slice belongs to the first iteration. If it is
        `conditional`, the first state is a bool without which no further iteration begins;
        then there are no inputs and no results.

        Raises ValueError for a state that changes its shape or dtype, and without steps.
        """
        if count < 1:
            raise ValueError(f"a scan of {count} steps")
        if count == 1 and not conditional:
            after, given = body(*(_first(value) for value in inputs), *states)
            return list(after), [_alone(value) for value in given]
        wholes = [self._shaped(value) for value in inputs]
        begins = [self._plain(value).tensor for value in states]
        held = [self._named("h", value.shape, value.dtype) for value in states]
        windows: dict[str, Window] = {}
        slices = []
        for number, value in enumerate(wholes):
            slices.append(self._named("w", value.shape[1:], value.dtype))
            windows[slices[-1].tensor] = _window(value.tensor, count, number, backward)
            self._read_by[slices[-1].tensor] = (value.tensor,)
        self._read_by |= {value.tensor: (begin,) for value, begin in zip(held, begins, strict=True)}
        moving = {value.tensor for value in (*slices, *held)}
        sequences: list[Tensor] = []
        results: list[Value] = []
        with self._body() as inner:
            after, given = body(*slices, *held)
            lasting = [self._lasting(*pair, moving) for pair in zip(held, after, strict=True)]
            written: list[str] = []
            for number, value in enumerate(given):
                if value.array is not None:
                    spread = np.broadcast_to(value.array, (count, *value.shape))
                    results.append(self.constant(spread, value.dtype))
                    continue
                results.append(self._named("q", (count, *value.shape), value.dtype))
                sequences.append(self._tensors[results[-1].tensor])
                written.append(self._own_result(value, inner, written))
                windows[written[-1]] = _window(results[-1].tensor, count, number, backward_results)
            self._hoist(inner, moving, written)
            nodes = self._fused(self._nodes[inner.first :], [*lasting, *written], often=True)
        self._read_by |= {
            value.tensor: (begin, other)
            for value, begin, other in zip(held, begins, lasting, strict=True)
        }
        alive = {self._root(read) for node in nodes for read in reads_of(node)}
        alive |= {self._root(other) for other in (*lasting, *written)}
        used = {other: window for other, window in windows.items() if other in alive}
        scan = Scan(
            name=name,
            count=count,
            body=nodes,
            windows=used,
            shapes={other: self._tensors[other] for other in used},
            sequences=tuple(sequences),
            states=tuple(
                State(tensor=self._tensors[value.tensor], initial=begin, after=other)
                for value, begin, other in zip(held, begins, lasting, strict=True)
            ),
            condition=held[0].tensor if conditional else None,
        )
        self._nodes.append(scan)
        return held, results

    def branch(
        self,
        name: str,
        condition: Value,
        then: Callable[[], Sequence[Value]],
        other: Callable[[], Sequence[Value]],
    ) -> list[Value]:
        """The results of the side that a bool of one element chooses. Only this side is
        computed; where neither computes anything, elements are selected.

        A side that raises ModelRefused is left out, and calls that choose it fail. Raises
        ModelRefused if both do, ValueError where their results differ in shape or dtype.
        """
        if condition.dtype != "bool" or condition.elements != 1:
            raise ValueError(f"a condition of {condition.dtype}{list(condition.shape)}")
        flag = self._plain(condition)
        sides = [self._side(side) for side in (then, other)]
        values = [values for values, _ in sides if values is not None]
        if not values:
            raise ModelRefused(sides[0][1].refusal)
        formats = [[value.format for value in given] for given in values]
        shapes = [[(value.shape, value.dtype) for value in given] for given in values]
        if shapes[0] != shapes[-1] or formats[0] != formats[-1]:
            spelt = [", ".join(f"{dtype}{list(shape)}" for shape, dtype in each) for each in shapes]
            raise ValueError(
                f"results are {spelt[0]} on one side and {spelt[1]} on the other; shapes must not "
                f"depend on values"
            )
        if all(values is not None and not body.nodes for values, body in sides):
            return [self._selected(condition, *pair) for pair in zip(*values, strict=True)]
        results = [
            replace(self._named("b", value.shape, value.dtype), format=value.format)
            for value in values[0]
        ]
        for number, result in enumerate(results):
            ends = [side.results[number] for _, side in sides if not side.refusal]
            self._read_by[result.tensor] = (flag.tensor, *ends)
        branch = Branch(
            name=name,
            condition=flag.tensor,
            then=sides[0][1],
            other=sides[1][1],
            results=tuple(self._tensors[result.tensor] for result in results),
        )
        self._nodes.append(branch)
        return results

    def _side(self, side: Callable[[], Sequence[Value]]) -> tuple[list[Value] | None, Side]:
        """The values of one side of a branch, and its body."""
        with self._body() as inner:
            try:
                values = list(side())
            except ModelRefused as error:
                return None, Side(nodes=(), results=(), refusal=str(error))
            computes = len(self._nodes) > inner.first
            results = [self._root(self._plain(value).tensor) for value in values]
            nodes = self._fused(self._nodes[inner.first :], results)
            return values, Side(nodes=nodes if computes else (), results=tuple(results))

    def _selected(self, condition: Value, first: Value, second: Value) -> Value:
        chosen = condition[(0,) * condition.rank]
        selected = self.compute(
            "if", first.shape, lambda *i: where(chosen, first[i], second[i]), dtype=first.dtype
        )
        return replace(selected, format=first.format)

    @contextmanager
    def _body(self) -> Iterator[_Inner]:
        """What is recorded inside belongs to a body: it is neither a node of the graph nor
        equal to a later one."""
        inner = _Inner(first=len(self._nodes))
        equal, copies = dict(self._equal), dict(self._copies)
        try:
            yield inner
        finally:
            self._nodes[inner.first :] = inner.hoisted
            self._equal, self._copies = equal, copies

    def _root(self, name: str) -> str:
        return self._aliases.get(name, name)

    def _plain(self, value: Value) -> Value:
        """The value stored as a whole tensor with its dimensions in order."""
        return self.stored(self.stored(value).materialized())

    def _shaped(self, value: Value) -> Value:
        """The same as a tensor of the value's own shape."""
        plain = self._plain(value)
        shape = value.shape or (1,)
        return plain if plain.storage == shape else self.alias(plain, shape)

    def _named(self, kind: str, shape: Sequence[int], dtype: DType) -> Value:
        """A new tensor that no expression writes."""
        _check_size(kind, shape)
        self._count += 1
        tensor = Tensor(name=f"{kind}{self._count}", shape=tuple(shape) or (1,), dtype=dtype)
        self._tensors[tensor.name] = tensor
        return self._value(tensor, tuple(shape), range(len(shape)))

    def _lasting(self, state: Value, after: Value, moving: set[str]) -> str:
        """The tensor that a state becomes. Another state or a slice is copied first, since
        these move while states are written."""
        if (after.shape, after.dtype) != (state.shape, state.dtype):
            raise ValueError(
                f"a state of {state.dtype}{list(state.shape)} becomes "
                f"{after.dtype}{list(after.shape)}"
            )
        plain = self._plain(after)
        root = self._root(plain.tensor)
        if root in moving and root != state.tensor:
            return self._copied(after).tensor
        return root

    def _copied(self, value: Value) -> Value:
        """A copy of the value that is equal to no other node."""
        equal, self._equal = self._equal, {}
        copy = self.compute("copy", value.shape, lambda *i: value[i], dtype=value.dtype)
        self._equal = equal
        return copy

    def _own_result(self, value: Value, inner: _Inner, others: Sequence[str]) -> str:
        """The tensor of a value that a node of the body writes and no other result is."""
        root = self._root(self._plain(value).tensor)
        own = {name for node in self._nodes[inner.first :] for name in node.outputs}
        return root if root in own - {*others} else self._copied(value).tensor

    def _hoist(self, inner: _Inner, moving: set[str], written: Sequence[str]) -> None:
        """Takes out of a scan's body what is the same in all iterations."""
        varying, nodes = {*moving}, []
        for node in self._nodes[inner.first :]:
            reads = {self._root(name) for name in reads_of(node)}
            if reads & varying or {*node.outputs} & {*written}:
                nodes.append(node)
                varying |= {*node.outputs}
            else:
                inner.hoisted.append(node)
        self._nodes[inner.first :] = nodes

    def _fused(
        self, nodes: Sequence[Node], results: Sequence[str], *, often: bool = False
    ) -> tuple[Node, ...]:
        own = {name for node in nodes for name in node.outputs}
        outside = {read for node in nodes for read in reads_of(node)} - own
        body = Graph(
            inputs=tuple(self._tensors[other] for other in sorted(outside)),
            constants={},
            nodes=tuple(nodes),
            outputs=tuple(results),
            aliases=self._aliases,
            shapes=self._shapes,
        )
        fused = fuse(body)
        return (with_pairs(fused) if often else fused).nodes

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
        _check_size(label, shape)
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
        self._read_by[result.name] = tuple(names)
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

    def graph(
        self,
        outputs: Sequence[Value],
        labels: Sequence[str],
        formats: Mapping[str, str] | None = None,
    ) -> Graph:
        """The graph with these outputs, each stored with its dimensions in order."""
        names = []
        for value in outputs:
            plain = self._plain(value)
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


def _window(tensor: str, count: int, number: int, backward: Sequence[bool]) -> Window:
    """Slices of a tensor in the order of its input or result, one an iteration."""
    last_first = number < len(backward) and backward[number]
    start, step = (count - 1, -1) if last_first else (0, 1)
    return Window(tensor=tensor, start=start, step=step)


def _first(value: Value) -> Value:
    """The first slice."""
    if value.array is not None:
        return value.builder.constant(value.array[0], value.dtype)
    return value.view(value.shape[1:], lambda *i: (0, *i))


def _alone(value: Value) -> Value:
    """The value as the only slice."""
    if value.array is not None:
        return value.builder.constant(value.array[np.newaxis], value.dtype)
    return value.view((1, *value.shape), lambda *i: i[1:])


def _widened(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages, all floats but those of the last stored in what they are computed in."""
    wide = {
        stage.name: COMPUTED_IN[stage.dtype]
        for stage in stages[:-1]
        if stage.dtype in ("float16", "bfloat16")
    }

    def change(part: Scalar) -> Scalar | None:
        """A read of a widened stage, without the conversion around it."""
        if isinstance(part, Cast) and isinstance(part.arg, Read) and part.arg.tensor in wide:
            read = rewrite(part.arg, change)
            return read if part.dtype == wide[part.arg.tensor] else Cast(part.dtype, read)
        if not isinstance(part, Read) or part.tensor not in wide:
            return None
        indices = tuple(rewrite(index, change) for index in part.indices)
        pad = None if part.pad is None else replace(part.pad, dtype=wide[part.tensor])
        return replace(part, indices=indices, pad=pad)

    return tuple(
        replace(stage, body=rewrite(stage.body, change), dtype=wide.get(stage.name, stage.dtype))
        for stage in stages
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

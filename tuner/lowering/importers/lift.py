"""TVM PrimFuncs, such as those of `te` tensors, lifted to expressions.

A function is read as it was written, before any schedule: each block is a stage whose
iterators are bound to loops of their own. Anything else is refused with the block and
the reason. The result never computes something other than the function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import tvm
from tvm import te, tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer

from tuner.errors import WorkloadError
from tuner.lowering.importers.lift_fusion import fused, guarded
from tuner.lowering.importers.lift_scalars import LiftError, ScalarLifter, Typed
from tuner.lowering.scalars import identity
from tuner.spaces.rewrite.stages import inlined
from tuner.workload.bounds import check_bounds, without_redundant_padding
from tuner.workload.budgets import BUDGETS
from tuner.workload.dtypes import COMPUTED_IN, FLOATS, DType
from tuner.workload.expression import (
    Axis,
    Cast,
    Const,
    Expression,
    Read,
    Reducer,
    Scalar,
    Stage,
    Tensor,
    Var,
    walk,
)
from tuner.workload.reference import greatest
from tuner.workload.structure import check_structure

__all__ = ["LiftError", "lift", "lift_te", "te_function"]

_REDUCERS: dict[str, Reducer] = {"Add": "sum", "Mul": "prod", "Max": "max", "Min": "min"}
_SPATIAL, _REDUCTION = tirx.IterVar.DataPar, tirx.IterVar.CommReduce
_THREAD_BINDING = tirx.ForKind.THREAD_BINDING


def lift_te(tensors: Sequence[te.Tensor]) -> Expression:
    """The expression of `te` tensors. Those given that are computed are its outputs.

    Inputs are the placeholders given, in order, then any others that the outputs are
    computed from, in the order of a walk of the graph. Raises LiftError for a graph
    without an output, and as `lift` does.
    """
    function = te_function(tensors)
    computed = [tensor for tensor in tensors if not isinstance(tensor.op, te.PlaceholderOp)]
    return lift(function, computed[-1].op.name)


def te_function(tensors: Sequence[te.Tensor]) -> tirx.PrimFunc:
    """The function of `te` tensors: inputs, then outputs, told apart as in `lift_te`.

    Raises LiftError.
    """
    for tensor in tensors:
        if not isinstance(tensor, te.Tensor):
            raise LiftError(
                f"{type(tensor).__name__} among the tensors; give tvm.te tensors, placeholders "
                f"and computed ones"
            )
    outputs = [tensor for tensor in tensors if not isinstance(tensor.op, te.PlaceholderOp)]
    if not outputs:
        raise LiftError("no computed tensor is given; give the outputs of the computation")
    inputs = [tensor for tensor in tensors if isinstance(tensor.op, te.PlaceholderOp)]
    seen: list[te.Tensor] = []
    for output in outputs:
        _walk(output, seen)
    inputs += [
        tensor
        for tensor in seen
        if isinstance(tensor.op, te.PlaceholderOp) and tensor not in inputs
    ]
    try:
        return te.create_prim_func([*inputs, *outputs])
    except (RuntimeError, ValueError, TypeError) as error:
        raise LiftError(f"the tensors make no function: {error}") from error


def _walk(tensor: te.Tensor, seen: list[te.Tensor]) -> None:
    """Collects the tensor and what it is computed from, sources first."""
    pending = [(tensor, False)]
    while pending:
        current, expanded = pending.pop()
        if current in seen:
            continue
        if expanded:
            seen.append(current)
        else:
            pending.append((current, True))
            pending += [(source, False) for source in reversed(current.op.input_tensors)]


def lift(function: tirx.PrimFunc, name: str) -> Expression:
    """The expression of an unscheduled function.

    Parameters that no block writes are inputs, those written are outputs, in order.
    Raises LiftError naming the block and the reason: symbolic shapes, tuple reductions,
    predicates, fused or split iterators, in-place updates, functions and dtypes that an
    expression does not have, reads that may leave their tensor.
    """
    reader = _Reader(function)
    for placed in _blocks(function.body, ()):
        reader.add(placed)
    expression = fused(reader.expression(_identifier(name)))
    # Models have a stage for every scalar operation.
    if len(expression.inputs) + len(expression.stages) > BUDGETS.tensors:
        expression = inlined(expression)
    try:
        check_structure(expression)
        check_bounds(expression)
    except WorkloadError as error:
        raise LiftError(f"{expression.name}: {error}") from None
    return expression


@dataclass(frozen=True, kw_only=True)
class _PlacedBlock:
    """A computing block with its iterators' values and the loops around it."""

    block: SBlock
    values: tuple[tvm.ir.Expr, ...]  # what each iterator is bound to
    loops: tuple[tirx.For, ...]  # around it, outermost first


def _blocks(statement: tirx.Stmt, loops: tuple[tirx.For, ...]) -> Iterator[_PlacedBlock]:
    """The computing blocks in order.

    A block without iterators that holds other blocks is replaced by these.
    """
    match statement:
        case tirx.SeqStmt():
            for part in statement.seq:
                yield from _blocks(part, loops)
        case tirx.For():
            yield from _blocks(statement.body, (*loops, statement))
        case SBlockRealize():
            block = statement.block
            if not _constant_true(statement.predicate):
                raise LiftError(
                    f"block {block.name_hint!r}: runs only where {statement.predicate}; lift it "
                    f"before scheduling"
                )
            if len(block.match_buffers):
                raise LiftError(
                    f"block {block.name_hint!r}: matches parts of buffers; lift it before "
                    f"scheduling"
                )
            if len(block.iter_vars) == 0 and not isinstance(block.body, tirx.BufferStore):
                yield from _blocks(block.body, loops)
            else:
                yield _PlacedBlock(block=block, values=tuple(statement.iter_values), loops=loops)
        case _:
            raise LiftError(
                f"a {type(statement).__name__} statement stands outside of every block: "
                f"{str(statement)[:80]!r}"
            )


def _constant_true(node: tvm.ir.Expr) -> bool:
    return isinstance(node, tirx.IntImm) and bool(node.value)


def _identifier(text: str) -> str:
    """The text as an identifier of the notation."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    return name if name and not name[0].isdigit() else f"_{name}"


class _Reader:
    """Collects stages, and knows which buffer holds which tensor."""

    def __init__(self, function: tirx.PrimFunc) -> None:
        self.params = list(function.params)
        self.names: dict[tvm.ir.Var, str] = {}
        self.written: dict[tvm.ir.Var, Stage] = {}
        self.tensors: dict[tvm.ir.Var, Tensor] = {}
        writes = {
            placed.block.body.buffer
            for placed in _blocks(function.body, ())
            if isinstance(placed.block.body, tirx.BufferStore)
        }
        for param in self.params:
            tensor = self._tensor(param)
            if param not in writes:
                self.tensors[param] = tensor

    def _tensor(self, buffer: tvm.ir.Var) -> Tensor:
        shape = getattr(buffer, "shape", None)
        if shape is None or not hasattr(buffer, "dtype"):
            raise LiftError(
                f"parameter {buffer.name!r} is no buffer; only functions of tensors are lifted"
            )
        extents = []
        for extent in shape:
            if not isinstance(extent, tirx.IntImm):
                raise LiftError(
                    f"{buffer.name!r} has the symbolic extent {extent}; give every extent a number"
                )
            extents.append(int(extent.value))
        if not extents:
            raise LiftError(f"{buffer.name!r} has no dimensions; give scalars the shape [1]")
        name = _unique(_identifier(buffer.name), set(self.names.values()))
        self.names.setdefault(buffer, name)
        return Tensor(name=self.names[buffer], shape=tuple(extents), dtype=self._dtype(buffer))

    def _dtype(self, buffer: tvm.ir.Var) -> DType:
        lifter = ScalarLifter(
            block=buffer.name, tensors={}, iterators={}, extents={}, analyzer=Analyzer()
        )
        return lifter.dtype(str(buffer.dtype))

    def add(self, placed: _PlacedBlock) -> None:
        """Add the stage of a block."""
        store = placed.block.body
        block = placed.block.name_hint
        if not isinstance(store, tirx.BufferStore):
            kind = type(store).__name__
            raise LiftError(
                f"block {block!r}: is a {kind}, not one assignment; reductions of tuples "
                f"(argmax) have no expression"
            )
        if store.buffer in self.written:
            raise LiftError(
                f"block {block!r}: writes {store.buffer.name!r}, which another block has written"
            )
        if store.buffer in self.tensors:
            raise LiftError(
                f"block {block!r}: writes {store.buffer.name!r}, which was read before; updates "
                f"in place are not lifted"
            )
        stage = _Stage(placed, self._tensor(store.buffer), self.tensors).stage()
        self.written[store.buffer] = stage
        self.tensors[store.buffer] = stage.tensor

    def expression(self, name: str) -> Expression:
        inputs = tuple(self.tensors[param] for param in self.params if param not in self.written)
        outputs = tuple(self.names[param] for param in self.params if param in self.written)
        return Expression(
            name=name, inputs=inputs, stages=tuple(self.written.values()), outputs=outputs
        )


def _unique(name: str, used: set[str]) -> str:
    """The name, with a number behind it where it is used already."""
    if name not in used:
        return name
    return next(
        f"{name}_{number}" for number in range(1, len(used) + 2) if f"{name}_{number}" not in used
    )


class _Stage:
    """One block on its way to a stage."""

    def __init__(
        self, placed: _PlacedBlock, target: Tensor, tensors: dict[tvm.ir.Var, Tensor]
    ) -> None:
        self.block, self.store, self.target, self.tensors = (
            placed.block,
            placed.block.body,
            target,
            tensors,
        )
        self.name = placed.block.name_hint
        self._check_loops(placed)
        self.iterators: dict[tvm.ir.Var, Typed] = {}
        self.axes = self._axes()
        self.reduce_axes = tuple(
            self._axis(iterator)
            for iterator in self.block.iter_vars
            if iterator.iter_type == _REDUCTION
        )

    def refuse(self, why: str) -> LiftError:
        return LiftError(f"block {self.name!r}: {why}")

    def _check_loops(self, placed: _PlacedBlock) -> None:
        """Each iterator must be a loop of its own, and the block stand in no other."""
        loops = {loop.loop_var: loop for loop in placed.loops}
        for iterator, value in zip(self.block.iter_vars, placed.values, strict=True):
            extent = iterator.dom.extent
            if iterator.iter_type not in (_SPATIAL, _REDUCTION) or not isinstance(
                extent, tirx.IntImm
            ):
                raise self.refuse(
                    f"iterator {iterator.var.name!r} is neither spatial nor reduced over a "
                    f"constant range"
                )
            if not _is_zero(iterator.dom.min):
                raise self.refuse(
                    f"iterator {iterator.var.name!r} starts at {iterator.dom.min}, not 0"
                )
            if extent.value == 1 and isinstance(value, tirx.IntImm) and value.value == 0:
                continue
            loop = loops.pop(value, None) if isinstance(value, tvm.ir.Var) else None
            if loop is None or not _is_zero(loop.min) or not _equals(loop.extent, extent.value):
                raise self.refuse(
                    f"iterator {iterator.var.name!r} is {value}, not one whole loop; lift it "
                    f"before scheduling"
                )
        for loop in loops.values():
            if not _equals(loop.extent, 1) or loop.kind == _THREAD_BINDING:
                raise self.refuse(
                    f"stands in the loop {loop.loop_var.name!r}, which none of its iterators "
                    f"is; lift it before scheduling"
                )

    def _axis(self, iterator: tirx.IterVar) -> Axis:
        used = {typed.node.name for typed in self.iterators.values() if isinstance(typed.node, Var)}
        name = _unique(_identifier(iterator.var.name.removeprefix("v_")), used)
        self.iterators[iterator.var] = Typed(Var(name), "int64")
        return Axis(name=name, extent=int(iterator.dom.extent.value))

    def _axes(self) -> tuple[Axis, ...]:
        """One axis for each dimension written. The block must write each element once."""
        spatial = {
            iterator.var: iterator
            for iterator in self.block.iter_vars
            if iterator.iter_type == _SPATIAL
        }
        axes: list[Axis] = []
        for dimension, (index, extent) in enumerate(
            zip(self.store.indices, self.target.shape, strict=True)
        ):
            if (
                isinstance(index, tvm.ir.Var)
                and index in spatial
                and _equals(spatial[index].dom.extent, extent)
            ):
                axes.append(self._axis(spatial.pop(index)))
            elif extent == 1 and _is_zero(index):
                axes.append(Axis(name=f"_unit{dimension}", extent=1))
            else:
                raise self.refuse(
                    f"writes {self.target.name!r} at {index} in dimension {dimension}, not at "
                    f"each index once"
                )
        for var, iterator in spatial.items():
            if not _equals(iterator.dom.extent, 1):
                raise self.refuse(f"iterator {var.name!r} does not index {self.target.name!r}")
            self.iterators[var] = Typed(Const(0, "int64"), "int64")
        return tuple(axes)

    def stage(self) -> Stage:
        reducer, value = self._reduction()
        extents = {axis.name: axis.extent for axis in (*self.axes, *self.reduce_axes)}
        analyzer = Analyzer()
        for iterator in self.block.iter_vars:
            analyzer.bind(iterator.var, iterator.dom)
        lifter = ScalarLifter(
            block=self.name,
            tensors=self.tensors,
            iterators=self.iterators,
            extents=extents,
            analyzer=analyzer,
        )
        tensors = {tensor.name: tensor for tensor in self.tensors.values()}
        typed = lifter.scalar(value)
        body = _unrounded(typed.node, self.target.dtype, tensors) if reducer is None else typed.node
        body = without_redundant_padding(guarded(body, extents, tensors), extents, tensors)
        stage = Stage(
            name=self.target.name,
            axes=self.axes,
            body=body,
            dtype=self.target.dtype,
            reduce_axes=self.reduce_axes,
            reducer=reducer,
        )
        wide = COMPUTED_IN.get(self.target.dtype, self.target.dtype)
        return replace(stage, accumulator=wide) if reducer else stage

    def _reduction(self) -> tuple[Reducer | None, tvm.ir.Expr]:
        """The reducer and what it reduces; no reducer for a plain assignment.

        A reduction has the form `T[…] = T[…] op value` and starts from the identity of
        op.
        """
        value, init = self.store.value, self.block.init
        if not self.reduce_axes:
            if init is not None:
                raise self.refuse("has an initial value and reduces over nothing")
            return None, value
        reducer = _REDUCERS.get(type(value).__name__)
        if reducer is None:
            raise self.refuse(
                f"reduces by {str(value)[:80]!r}; sums, products, maxima and minima are lifted"
            )
        sides = [(value.a, value.b), (value.b, value.a)]
        reduced = next((other for own, other in sides if self._own(own)), None)
        if reduced is None:
            raise self.refuse(
                f"does not reduce into {self.target.name!r} but computes {str(value)[:80]!r}"
            )
        if not isinstance(init, tirx.BufferStore) or not self._same_place(
            init.buffer, init.indices
        ):
            raise self.refuse("reduces without starting from an initial value of its own")
        if not _starts(reducer, init.value, self.target.dtype):
            raise self.refuse(
                f"starts its {reducer} from {init.value}; start from its identity and combine "
                f"afterwards"
            )
        return reducer, reduced

    def _own(self, node: tvm.ir.Expr) -> bool:
        return isinstance(node, tvm.ir.TensorLoad) and self._same_place(node.source, node.indices)

    def _same_place(self, buffer: tvm.ir.Var, indices: Sequence[tvm.ir.Expr]) -> bool:
        return bool(buffer.same_as(self.store.buffer)) and all(
            index.same_as(other) or (_is_zero(index) and _is_zero(other))
            for index, other in zip(indices, self.store.indices, strict=True)
        )


def _equals(node: tvm.ir.Expr, value: int) -> bool:
    return isinstance(node, tirx.IntImm) and int(node.value) == value


def _is_zero(node: tvm.ir.Expr) -> bool:
    return _equals(node, 0)


def _starts(reducer: Reducer, start: tvm.ir.Expr, dtype: DType) -> bool:
    """Whether a reduction may start from a value.

    Its identity, or for max and min the end of the finite numbers.
    """
    if not isinstance(start, tirx.IntImm | tirx.FloatImm):
        return False
    allowed = {float(identity(reducer, dtype).value)}
    if reducer in ("max", "min") and dtype in FLOATS:
        allowed.add((-1 if reducer == "max" else 1) * greatest(dtype))
    return float(start.value) in allowed


def _unrounded(body: Scalar, dtype: DType, tensors: Mapping[str, Tensor]) -> Scalar:
    """The body without a final conversion to the dtype that it is stored in.

    Storing converts anyway, but not from floats to integers.
    """
    match body:
        case Cast(dtype=wide, arg=Cast(dtype=narrow, arg=arg)) if (
            narrow == dtype and wide == COMPUTED_IN.get(dtype)
        ):
            pass
        case Cast(dtype=wide, arg=arg) if wide == dtype:
            pass
        case _:
            return body
    return (
        arg if dtype in FLOATS or not any(_floating(node, tensors) for node in walk(arg)) else body
    )


def _floating(node: Scalar, tensors: Mapping[str, Tensor]) -> bool:
    match node:
        case Read(tensor=name):
            return tensors[name].dtype in FLOATS
        case Const(dtype=dtype) | Cast(dtype=dtype):
            return dtype in FLOATS
        case _:
            return False

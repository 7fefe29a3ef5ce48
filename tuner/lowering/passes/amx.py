"""Sums of products in AMX's tile registers.

Annotated loops are replaced by instructions that load, multiply and store whole
registers. The distance between a register's rows is read off an index, for which
buffers must have one dimension. So TVM's lowering is run up to flattening first. The
build runs it again and finds nothing left of that to do.

A thread must configure the rows and columns of the registers before it uses them. This
is done outside of all loops, once for a kernel or for a task of the thread pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi import structural_map, structural_walk

from tuner.lowering.llvm_functions import (
    LlvmFunction,
    amx_configuration,
    called_functions,
    with_definitions,
)
from tuner.lowering.passes.dot_products import element
from tuner.lowering.passes.flattening import flattened
from tuner.lowering.passes.substitution import substituted
from tuner.spaces.rewrite.bf16x3 import PRODUCTS, RESIDUALS
from tuner.target.architectures.x86_64.instructions import AMX as TILES
from tuner.target.architectures.x86_64.instructions import MATRIX_UNITS
from tuner.target.isa import IsaDescription

AMX, PARTS = "tuner_amx", "tuner_amx_parts"  # the annotations
# Annotated loops that instructions replace, inside of the reduction's: rows, vectors,
# vector lanes, words, elements of a word.
INNER = 5
MULTIPLY_ADD = {
    ("bfloat16", "bfloat16"): "tdpbf16ps",
    ("int8", "int8"): "tdpbssd",
    ("int8", "uint8"): "tdpbsud",
    ("uint8", "int8"): "tdpbusd",
    ("uint8", "uint8"): "tdpbuud",
}


def use_amx_tiles(mod: tvm.IRModule, isa: IsaDescription) -> tvm.IRModule:
    """The module with annotated sums done in AMX's tile registers.

    It stays as it is where it has no such sums, or where `isa` lacks AMX: schedules are
    compiled for poorer CPUs too.
    """
    if not set(MATRIX_UNITS) <= set(isa.matrix_units) or not any(
        AMX in loop.annotations
        for function in mod.functions.values()
        for loop in _every(tirx.For, function.body)
    ):
        return mod
    flat = flattened(mod)
    return tvm.IRModule(
        {name: _in_registers(function) for name, function in flat.functions.items()},
        attrs=flat.attrs,
    )


def _in_registers(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with its annotated sums in registers."""
    configurations: dict[str, LlvmFunction] = {}

    def replaced(loop: tirx.For, *, from_zero: bool = False) -> tirx.Stmt:
        sums = _sum(loop)
        if sums is None:
            return loop
        configurations[sums.configuration.name] = sums.configuration
        return sums.statement(from_zero)

    def from_zeros(statements: tirx.SeqStmt) -> tirx.Stmt:
        """A sum that begins with zeros in memory begins with zeros in registers."""
        replacements: list[tirx.Stmt] = []
        for statement in statements.seq:
            if (
                replacements
                and isinstance(statement, tirx.For)
                and _sum(statement) is not None
                and _sets(replacements[-1])
            ):
                replacements[-1] = replaced(statement, from_zero=True)
            else:
                replacements.append(statement)
        return _sequence(replacements)

    body = structural_map(
        structural_map(function.body, (tirx.SeqStmt, from_zeros)), (tirx.For, replaced)
    )
    configured = function.with_body(_Configured(frozenset(configurations)).statement(body))
    return with_definitions(configured, configurations.values())


# --- a sum


@dataclass(frozen=True, kw_only=True)
class _Sum:
    """Loops that add products of two registers to accumulator registers, `steps` times."""

    steps: Sequence[tirx.For]
    inner: Sequence[tirx.For]  # as INNER says
    sums: tvm.ir.TensorLoad
    narrow: tvm.ir.TensorLoad  # the factor that all vector lanes share
    wide: tvm.ir.TensorLoad  # the factor with words of its own for each vector lane
    instruction: str
    # Of the products of parts: that with the residual of the narrow factor, and that with
    # the residual of the wide one.
    residuals: tuple[int, int]

    @property
    def rows(self) -> int:
        """Rows of a register: the most that divide the rows of accumulators."""
        extent = int(self.inner[0].extent)
        return next(rows for rows in range(min(extent, TILES.rows), 0, -1) if extent % rows == 0)

    @property
    def tiles(self) -> tuple[int, int]:
        """Accumulator registers: how many one below another, and how many side by side."""
        return int(self.inner[0].extent) // self.rows, int(self.inner[1].extent)

    @property
    def configuration(self) -> LlvmFunction:
        """The function that gives each register its rows and bytes a row.

        Accumulators, the narrow factor and the wide factor have different shapes.
        """
        lanes, words = int(self.inner[2].extent), int(self.inner[3].extent)
        columns, rows = [lanes] * TILES.registers, [self.rows] * TILES.registers
        for register in self._narrow:
            columns[register] = words
        for register in self._wide:
            rows[register] = words
        return amx_configuration([TILES.word_bytes * count for count in columns], rows)

    @property
    def _narrow(self) -> range:
        """Registers of the narrow factor.

        All that it needs; where the other side needs fewer, what that one leaves.
        """
        down, across = self.tiles
        first = down * across
        return (
            range(first, first + down)
            if down <= across
            else range(first + across, min(first + across + down, TILES.registers))
        )

    @property
    def _wide(self) -> range:
        """Registers of the wide factor, by the same rule."""
        down, across = self.tiles
        first = down * across
        return (
            range(first + down, min(first + down + across, TILES.registers))
            if down <= across
            else range(first, first + across)
        )

    def statement(self, from_zero: bool) -> tirx.Stmt:
        """The instructions. `from_zero`: accumulators are zeroed instead of loaded."""
        down, across = self.tiles
        sums = [(row, column) for row in range(down) for column in range(across)]
        if from_zero:
            before = [_call("tilezero", number) for number in range(len(sums))]
        else:
            before = [
                _call("tileloadd64", number, *self._place(self.sums, 0, tile))
                for number, tile in enumerate(sums)
            ]
        after = [
            _call("tilestored64", number, *self._place(self.sums, 0, tile))
            for number, tile in enumerate(sums)
        ]
        parts = next((loop for loop in self.steps if PARTS in loop.annotations), None)
        step: tirx.Stmt = tirx.SeqStmt(
            [*(self._step({}) if parts is None else self._products(parts.loop_var))]
        )
        for loop in (reduction for reduction in reversed(self.steps) if reduction is not parts):
            step = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, step)
        shape = tirx.Evaluate(tirx.call_extern("void", self.configuration.name))
        return tirx.SeqStmt([shape, *before, step, *after])

    def _products(self, which: tirx.Var) -> Iterator[tirx.Stmt]:
        """The products of parts, in an order in which each changes only one factor.

        The other factor's registers are not loaded again. `which` is the loop over the
        products.
        """
        contents: dict[int, tuple[int, bool]] = {}
        of_nearest = next(product for product in range(PRODUCTS) if product not in self.residuals)
        for product in (self.residuals[0], of_nearest, self.residuals[1]):
            for statement in self._step(contents, product):
                yield _with(statement, which, product)

    def _step(self, contents: dict[int, tuple[int, bool]], product: int = 0) -> Iterator[tirx.Stmt]:
        """The loads and multiplications of one step.

        The side of fewer registers is loaded first, the other as far as registers are
        left. `contents` says what each register contains: a position along its side, and
        whether it is the residual or the nearest part of the factor.
        """
        down, across = self.tiles
        kept_registers, streamed_registers = (
            (self._narrow, self._wide) if down <= across else (self._wide, self._narrow)
        )
        for number, register in enumerate(kept_registers):
            yield from self._loaded(register, number, contents, product)
        count = max(down, across)
        for first in range(0, count, len(streamed_registers)):
            part = list(zip(streamed_registers, range(first, count), strict=False))
            for register, number in part:
                yield from self._loaded(register, number, contents, product)
            for register, number in part:
                for kept_register, other in zip(
                    kept_registers, range(len(kept_registers)), strict=True
                ):
                    row, column = (other, number) if down <= across else (number, other)
                    factors = (
                        (kept_register, register) if down <= across else (register, kept_register)
                    )
                    yield _call(self.instruction, row * across + column, *factors)

    def _loaded(
        self, register: int, number: int, contents: dict[int, tuple[int, bool]], product: int
    ) -> Iterator[tirx.Stmt]:
        """The load, unless the register holds this already."""
        needed = (number, product == self.residuals[0 if register in self._narrow else 1])
        if contents.get(register) != needed:
            contents[register] = needed
            yield self._load(register, number)

    def _load(self, register: int, number: int) -> tirx.Stmt:
        narrow = register in self._narrow
        place = (
            self._place(self.narrow, 0, (number, 0))
            if narrow
            else self._place(self.wide, 3, (0, number))
        )
        return _call("tileloadd64", register, *place)

    def _place(
        self, load: tvm.ir.TensorLoad, along: int, tile: tuple[int, int]
    ) -> tuple[tvm.ir.PrimExpr, tvm.ir.PrimExpr]:
        """The address of a register's first element, and the bytes from one row to the next.

        Rows go along the inner loop number `along`. Raises ValueError where they are
        not a constant distance apart.
        """
        first = [tile[0] * self.rows, tile[1], 0, 0, 0]
        index = self._index(load, first)
        first[along] += 1
        distance = tvm.sym.Analyzer().simplify(self._index(load, first) - index)
        if not isinstance(distance, tirx.IntImm):
            raise ValueError(f"rows of a register are apart by {distance}, which is not constant")
        row_bytes = int(distance) * tvm.DataType(str(load.ty)).bits // 8
        return tirx.address_of(tirx.BufferLoad(load.source, [index])), tirx.const(
            row_bytes, "int64"
        )

    def _index(self, load: tvm.ir.TensorLoad, values: Sequence[int]) -> tvm.ir.PrimExpr:
        loops = zip(self.inner, values, strict=True)
        fixed = {loop.loop_var: tirx.const(value, str(loop.loop_var.ty)) for loop, value in loops}
        return substituted(load.indices[0], fixed)


def _sum(loop: tirx.For) -> _Sum | None:
    """The sum whose outermost annotated loop this is; None for any other loop."""
    chain: list[tirx.For] = []
    innermost: Any = loop
    while isinstance(innermost, tirx.For):
        chain.append(innermost)
        innermost = innermost.body
    marked = [AMX in level.annotations for level in chain]
    if not marked[0] or sum(marked) != INNER + 1 or not isinstance(innermost, tirx.BufferStore):
        return None
    inner, product = chain[-INNER:], innermost.value.b
    factors = [_factor(factor.value) for factor in (product.a, product.b)]
    wide, narrow = sorted(factors, key=lambda factor: not _moves(factor[0], inner[2].loop_var))
    residuals = RESIDUALS if narrow is factors[0] else (RESIDUALS[1], RESIDUALS[0])
    return _Sum(
        steps=chain[:-INNER],
        inner=inner,
        sums=innermost.value.a,
        narrow=narrow[0],
        wide=wide[0],
        instruction=MULTIPLY_ADD[narrow[1], wide[1]],
        residuals=residuals,
    )


def _factor(value: tvm.ir.PrimExpr) -> tuple[tvm.ir.TensorLoad, str]:
    """A factor's load and its dtype, as `element` says. It may be half of a word of 32 bits,
    all numbers of which an instruction takes."""
    load, dtype = element(value)
    if not isinstance(load, tvm.ir.TensorLoad):
        (load,) = _every(tvm.ir.TensorLoad, load)
    return load, dtype


def _with(statement: tirx.Stmt, loop: tirx.Var, value: int) -> tirx.Stmt:
    return substituted(statement, {loop: tirx.const(value, str(loop.ty))})


def _moves(load: tvm.ir.TensorLoad, name: tirx.Var) -> bool:
    return any(var.same_as(name) for var in _every(tirx.Var, load.indices[0]))


def _sets(statement: tirx.Stmt) -> bool:
    """Whether the statement is the loops that set annotated sums to zero.

    TVM gives them the annotations too.
    """
    while isinstance(statement, tirx.For) and AMX in statement.annotations:
        statement = statement.body
    return isinstance(statement, tirx.BufferStore) and isinstance(
        statement.value, tirx.FloatImm | tirx.IntImm
    )


# --- the function around it


@dataclass(frozen=True)
class _Configured:
    """Configures the registers once before the outermost loop, or in each task of the pool.

    Each sum configures them before itself; these calls are moved outwards.
    """

    functions: frozenset[str]  # names of the functions that configure them

    def statement(self, statement: tirx.Stmt) -> tirx.Stmt:
        """The statement with its configurations moved outwards.

        What follows a sum outside of loops, up to the next sum, comes before the
        release of the registers: the sum's own statements are part of it.
        """
        if isinstance(statement, tirx.SeqStmt):
            parts: list[list[tirx.Stmt]] = []
            for part in statement.seq:
                if parts and self._configures(parts[-1][0]) and not self._called(part):
                    parts[-1].append(part)
                else:
                    parts.append([part])
            return tirx.SeqStmt(
                [
                    self._around(tirx.SeqStmt(part))
                    if self._configures(part[0])
                    else self.statement(*part)
                    for part in parts
                ]
            )
        if isinstance(statement, tirx.AttrStmt):
            return tirx.AttrStmt(
                statement.node,
                statement.attr_key,
                statement.value,
                self.statement(statement.body),
            )
        if isinstance(statement, tirx.For) and any(
            loop.kind == tirx.ForKind.PARALLEL for loop in _every(tirx.For, statement)
        ):
            body, notes = self.statement(statement.body), statement.annotations
            return tirx.For(
                statement.loop_var,
                statement.min,
                statement.extent,
                statement.kind,
                body,
                annotations=notes,
            )
        return self._around(statement) if self._called(statement) else statement

    def _around(self, statement: tirx.Stmt) -> tirx.Stmt:
        """A nest of one sum, with the registers configured before it and released after."""
        (name,) = self._called(statement)  # it has one sum
        bare = structural_map(statement, (tirx.SeqStmt, self._without_configuring))
        return tirx.SeqStmt(
            [tirx.Evaluate(tirx.call_extern("void", name)), bare, _call("tilerelease")]
        )

    def _without_configuring(self, statements: tirx.SeqStmt) -> tirx.Stmt:
        return _sequence([part for part in statements.seq if not self._configures(part)])

    def _called(self, statement: tirx.Stmt) -> list[str]:
        """The functions that configure registers below the statement, each once."""
        return [name for name in called_functions(statement) if name in self.functions]

    def _configures(self, statement: tirx.Stmt) -> bool:
        return isinstance(statement, tirx.Evaluate) and bool(self._called(statement))


def _sequence(statements: Sequence[tirx.Stmt]) -> tirx.Stmt:
    return tirx.SeqStmt(list(statements)) if len(statements) > 1 else statements[0]


def _every(kind: type[Any], root: Any) -> list[Any]:
    """The nodes of a kind below the root."""
    nodes: list[Any] = []
    structural_walk(root, (kind, nodes.append))
    return nodes


def _call(instruction: str, *arguments: int | tvm.ir.PrimExpr) -> tirx.Stmt:
    """A call of an AMX instruction. Integers are numbers of registers."""
    operands = [
        tirx.const(argument, "int8") if isinstance(argument, int) else argument
        for argument in arguments
    ]
    return tirx.Evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.{instruction}", *operands))

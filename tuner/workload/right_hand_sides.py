"""Semantic analysis of right-hand sides: from a parse tree to a typed scalar tree.

Reads of float16 and bfloat16 are converted to float32, those of integers of 8 and 16
bits to int32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from lark import Token, Tree

from tuner.workload.dtypes import (
    BYTE_FLOAT_NAMES,
    COMPUTED_IN,
    DTYPE_BYTES,
    DTYPE_NAMES,
    FLOATS,
    INTEGERS,
    DType,
)
from tuner.workload.expression import (
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Tensor,
    Unary,
    UnaryOp,
    Var,
    Within,
    reads,
    rewrite,
)
from tuner.workload.grammar import Node, fail, suggestion
from tuner.workload.quasi_affine import check_index
from tuner.workload.scalar_operators import BINARY_OPERATORS, UNARY_OPERATORS
from tuner.workload.terms import (
    LITERAL_INT,
    LITERAL_REAL,
    Term,
    coerce,
    common_type,
    fold_literals,
    identity_operand,
    integer,
    number,
    real,
)

# Functions of one floating-point value.
UNARY_FUNCTIONS: Mapping[str, UnaryOp] = {
    op: op for op, row in UNARY_OPERATORS.items() if row.is_function
}
# Functions of the bits of two integers.
BIT_FUNCTIONS: Mapping[str, BinaryOp] = {
    "bitand": "bitand",
    "bitor": "bitor",
    "bitxor": "xor",
    "shl": "shl",
    "shr": "shr",
}
FUNCTIONS = (
    *UNARY_FUNCTIONS,
    *BIT_FUNCTIONS,
    "isnan",
    "abs",
    "min",
    "max",
    "pow",
    "where",
    "clamp",
    "bitcast",
    *DTYPE_NAMES,
)
_INFIX: Mapping[str, BinaryOp] = {
    row.symbol: op for op, row in BINARY_OPERATORS.items() if row.symbol is not None
}


@dataclass(frozen=True, slots=True)
class BuiltRead:
    """A read of a right-hand side, and where it stands."""

    read: Read
    node: Node
    conditions: tuple[Scalar, ...]  # all hold where it is evaluated


@dataclass
class TermBuilder:
    """Builds the scalar trees of one stage, and records their reads and iterators."""

    tensors: Mapping[str, Tensor]  # inputs and stages defined so far
    later: frozenset[str]  # tensors defined further down, for a better message
    symbols: Mapping[str, int]
    used_symbols: set[str]
    iterators: dict[str, Node] = field(default_factory=dict)  # by first appearance
    reads: list[BuiltRead] = field(default_factory=list)
    conditions: tuple[Scalar, ...] = ()  # under which the node at hand is evaluated

    def build(self, node: Node) -> Term:
        if isinstance(node, Token):
            raise fail(f"unexpected {str(node)!r}", node)
        build: Callable[[Tree[Token]], Term] = getattr(self, f"_{node.data}")
        return build(node)

    def constant(self, node: Node) -> int:
        """The value of an extent: an integer expression of literals and shape symbols."""
        before = len(self.iterators)
        term = self.build(node)
        if len(self.iterators) > before:
            name = list(self.iterators)[before]
            raise fail(
                f"unknown shape symbol {name!r}; give its "
                f"extent{suggestion(name, list(self.symbols))}",
                self.iterators[name],
            )
        if term.type != LITERAL_INT:
            raise fail("an extent is an integer made of numbers and shape symbols", node)
        return int(term.value)

    def _number(self, node: Tree[Token]) -> Term:
        return number(cast(Token, node.children[0]))

    def _infinity(self, node: Tree[Token]) -> Term:
        return real(math.inf)

    def _true(self, node: Tree[Token]) -> Term:
        return Term(Const(True, "bool"), "bool")

    def _false(self, node: Tree[Token]) -> Term:
        return Term(Const(False, "bool"), "bool")

    def _name(self, node: Tree[Token]) -> Term:
        name = str(node.children[0])
        if name in self.symbols:
            self.used_symbols.add(name)
            return integer(self.symbols[name], node)
        if name in self.tensors or name in self.later:
            raise fail(f"{name!r} is a tensor; index it, e.g. {name}[i]", node)
        self.iterators.setdefault(name, node)
        return Term(Var(name), "int64")

    def _read(self, node: Tree[Token]) -> Term:
        name, *rest = node.children
        pads = [child for child in rest if isinstance(child, Tree) and child.data == "pad"]
        index_nodes = [child for child in rest if child not in pads]
        tensor = self._tensor(str(name), node)
        if len(index_nodes) != len(tensor.shape):
            raise fail(
                f"{tensor.name} has {len(tensor.shape)} dimensions, not {len(index_nodes)}", node
            )
        indices = tuple(self._index(child) for child in index_nodes)
        read = Read(tensor.name, indices, self._pad(pads[0], tensor.dtype) if pads else None)
        self.reads.append(BuiltRead(read, node, self.conditions))
        computed = COMPUTED_IN.get(tensor.dtype, tensor.dtype)
        return Term(read if computed == tensor.dtype else Cast(computed, read), computed)

    def _tensor(self, name: str, node: Node) -> Tensor:
        if name in self.tensors:
            return self.tensors[name]
        if name in self.later:
            raise fail(
                f"{name!r} is read before it is defined; stages run in the order they are "
                f"written, none may read itself",
                node,
            )
        if name in FUNCTIONS:
            raise fail(f"{name!r} is a function; call it with parentheses", node)
        raise fail(f"unknown tensor {name!r}{suggestion(name, list(self.tensors))}", node)

    def _index(self, node: Node) -> Scalar:
        term = self.build(node)
        if term.type != LITERAL_INT and term.type not in INTEGERS:
            raise fail(
                f"an index is an integer, this is a {term.type}; convert it, e.g. i32(…)", node
            )
        index = coerce(term, "int64", node)
        check_index(index, node)
        if any(self.tensors[read.tensor].dtype in FLOATS for read in reads(index)):
            raise fail("a condition within an index compares integers", node)
        return rewrite(index, self._clamped)

    def _clamped(self, node: Scalar) -> Scalar | None:
        """A read of a tensor within declared bounds, clamped to them; None for other nodes.

        What is clamped to them already stays as it is.
        """
        match node:
            case Binary(op="max", lhs=Binary(op="min", lhs=Read() as read)):
                clamped = self._within_bounds(read)
                return node if node == clamped else None
            case Read():
                return self._within_bounds(node)
        return None

    def _within_bounds(self, read: Read) -> Scalar | None:
        tensor = self.tensors[read.tensor]
        if read.pad is not None or not isinstance(tensor.fact, Within):
            return None
        least, greatest = (
            Const(bound, tensor.dtype) for bound in (tensor.fact.start, tensor.fact.stop - 1)
        )
        return Binary("max", Binary("min", read, greatest), least)

    def _pad(self, node: Tree[Token], dtype: DType) -> Const:
        *sign, value = node.children
        term = real(math.inf) if str(value) == "inf" else number(cast(Token, value))
        if sign:
            term = (
                real(-term.value) if term.type == LITERAL_REAL else integer(-int(term.value), node)
            )
        if dtype == "bool":
            raise fail("a read of bool cannot be padded; compare a padded integer instead", node)
        settled = coerce(term, dtype, node)
        assert isinstance(settled, Const)
        return settled

    def _minus(self, node: Tree[Token]) -> Term:
        term = self.build(node.children[1])
        if term.literal:
            return (
                integer(-int(term.value), node) if term.type == LITERAL_INT else real(-term.value)
            )
        self._numeric(term, node)
        return Term(Unary("neg", term.node), term.type)

    def _negation(self, node: Tree[Token]) -> Term:
        return Term(Unary("not", self._truth(node.children[0])), "bool")

    def _either(self, node: Tree[Token]) -> Term:
        return self._logic("or", node)

    def _both(self, node: Tree[Token]) -> Term:
        return self._logic("and", node)

    def _logic(self, op: BinaryOp, node: Tree[Token]) -> Term:
        first, *others = (self._truth(child) for child in node.children)
        for other in others:
            first = Binary(op, first, other)
        return Term(first, "bool")

    def _truth(self, node: Node) -> Scalar:
        term = self.build(node)
        if term.type != "bool":
            raise fail(
                f"a condition is needed, this is a {term.type}; compare it, e.g. x > 0", node
            )
        return term.node

    def _comparison(self, node: Tree[Token]) -> Term:
        left, symbol, right = node.children
        first, second = self.build(left), self.build(right)
        if first.literal and second.literal:
            raise fail(
                "both sides of the comparison are constants; write the branch that holds", node
            )
        dtype = cast(DType, common_type(first.type, second.type, node))
        return Term(
            Binary(_INFIX[str(symbol)], coerce(first, dtype, left), coerce(second, dtype, right)),
            "bool",
        )

    def _sum(self, node: Tree[Token]) -> Term:
        return self._chain(node)

    def _product(self, node: Tree[Token]) -> Term:
        return self._chain(node)

    def _chain(self, node: Tree[Token]) -> Term:
        term = self.build(node.children[0])
        for symbol, child in zip(node.children[1::2], node.children[2::2], strict=True):
            term = self._arithmetic(str(symbol), term, self.build(child), child)
        return term

    def _arithmetic(self, symbol: str, left: Term, right: Term, node: Node) -> Term:
        op = _INFIX[symbol]
        dtype = common_type(left.type, right.type, node)
        if op in ("floordiv", "floormod") and (right.type != LITERAL_INT or right.value <= 0):
            raise fail(f"{symbol!r} needs a positive constant integer on its right", node)
        if left.literal and right.literal:
            return fold_literals(op, left, right, node)
        if op == "div" and right.literal and right.value == 0:
            raise fail("division by zero", node)
        if op == "div" and dtype not in FLOATS:
            raise fail(
                f"'/' divides floating-point values, not {dtype}; use '//' or convert, e.g. f32(…)",
                node,
            )
        if op in ("floordiv", "floormod") and dtype not in INTEGERS:
            raise fail(f"{symbol!r} divides integers, not {dtype}", node)
        if dtype in INTEGERS:
            kept = identity_operand(op, left, right)
            if kept is not None:
                return Term(coerce(kept, cast(DType, dtype), node), dtype)
        return self._binary(op, left, right, node)

    def _binary(self, op: BinaryOp, left: Term, right: Term, node: Node) -> Term:
        dtype = cast(DType, common_type(left.type, right.type, node))
        self._numeric(Term(left.node, dtype), node)
        return Term(Binary(op, coerce(left, dtype, node), coerce(right, dtype, node)), dtype)

    def _numeric(self, term: Term, node: Node) -> None:
        if term.type == "bool":
            raise fail("arithmetic on a condition; write where(condition, 1, 0)", node)

    def _select(self, node: Tree[Token]) -> Term:
        return self._choose(node.children, node)

    def _choose(self, parts: list[Node], node: Node) -> Term:
        cond = self._truth(parts[0])
        then = self._build_under(cond, parts[1])
        other = self._build_under(Unary("not", cond), parts[2])
        kind = common_type(then.type, other.type, node)
        if then.literal and other.literal:
            kind = "float32" if kind == LITERAL_REAL else "int32"
        dtype = cast(DType, kind)
        return Term(
            Select(cond, coerce(then, dtype, parts[1]), coerce(other, dtype, parts[2])), dtype
        )

    def _build_under(self, condition: Scalar, node: Node) -> Term:
        outer = self.conditions
        self.conditions = (*outer, condition)
        term = self.build(node)
        self.conditions = outer
        return term

    def _call(self, node: Tree[Token]) -> Term:
        name, arguments = str(node.children[0]), list(node.children[1:])
        if name not in FUNCTIONS:
            raise fail(
                f"unknown function "
                f"{name!r}{suggestion(name, list(FUNCTIONS)) or '; known are ' + ', '.join(FUNCTIONS)}",  # noqa: E501
                node,
            )
        if name == "bitcast":
            return self._bitcast(arguments, node)
        counts = {"min": (2, 8), "max": (2, 8), "pow": (2, 2), "where": (3, 3), "clamp": (3, 3)}
        counts |= dict.fromkeys(BIT_FUNCTIONS, (2, 2))
        least, most = counts.get(name, (1, 1))
        if not least <= len(arguments) <= most:
            raise fail(
                f"{name} takes {least if least == most else f'{least} to {most}'} arguments, "
                f"not {len(arguments)}",
                node,
            )
        if name == "where":
            return self._choose(arguments, node)
        terms = [self.build(argument) for argument in arguments]
        if name in DTYPE_NAMES:
            return self._convert(terms[0], DTYPE_NAMES[name], node)
        if name in UNARY_FUNCTIONS or name == "abs":
            return self._unary(name, terms[0], node)
        if name == "isnan":
            if terms[0].type not in FLOATS:
                raise fail(f"isnan takes floating-point values, not {terms[0].type}", node)
            return Term(Unary("isnan", terms[0].node), "bool")
        return self._combine(name, terms, node)

    def _combine(self, name: str, terms: list[Term], node: Node) -> Term:
        if name == "clamp":
            least = self._extreme("min", terms[0], terms[2], node)
            return self._extreme("max", least, terms[1], node)
        if name in BIT_FUNCTIONS:
            kind = common_type(terms[0].type, terms[1].type, node)
            if kind not in INTEGERS:
                raise fail(f"{name} takes integers of a tensor, not {kind}", node)
            return self._binary(BIT_FUNCTIONS[name], terms[0], terms[1], node)
        if name == "pow":
            kind = common_type(terms[0].type, terms[1].type, node)
            if kind not in FLOATS:
                raise fail("pow takes floating-point values of a tensor", node)
            return self._binary("pow", terms[0], terms[1], node)
        result = terms[0]
        for term in terms[1:]:
            result = self._extreme(cast(BinaryOp, name), result, term, node)
        return result

    def _extreme(self, op: BinaryOp, left: Term, right: Term, node: Node) -> Term:
        if left.literal and right.literal:
            chosen = (max if op == "max" else min)(left.value, right.value)
            return (
                integer(int(chosen), node)
                if left.type == right.type == LITERAL_INT
                else real(float(chosen))
            )
        return self._binary(op, left, right, node)

    def _unary(self, name: str, term: Term, node: Node) -> Term:
        self._numeric(term, node)
        if name == "abs":
            if term.literal:
                return (
                    integer(abs(int(term.value)), node)
                    if term.type == LITERAL_INT
                    else real(abs(term.value))
                )
            return Term(Unary("abs", term.node), term.type)
        if term.literal:
            of_constant = UNARY_OPERATORS[UNARY_FUNCTIONS[name]].of_constant
            assert of_constant is not None, f"{name} of a literal"
            try:
                return real(of_constant(term.value))
            except (ValueError, OverflowError, ZeroDivisionError):
                raise fail(f"{name}({term.value}) is not a number", node) from None
        if term.type not in FLOATS:
            raise fail(
                f"{name} takes floating-point values, not {term.type}; convert, e.g. f32(…)", node
            )
        return Term(Unary(UNARY_FUNCTIONS[name], term.node), term.type)

    def _convert(self, term: Term, dtype: DType, node: Node) -> Term:
        if dtype == "bool":
            raise fail("nothing converts to bool; compare instead, e.g. x != 0", node)
        if term.type == LITERAL_REAL and dtype in INTEGERS:
            raise fail(f"{term.value} is not an integer", node)
        converted = (
            coerce(term, dtype, node)
            if term.literal
            else term.node
            if term.type == dtype
            else Cast(dtype, term.node)
        )
        computed = COMPUTED_IN.get(dtype, dtype)
        return Term(converted if computed == dtype else Cast(computed, converted), computed)

    def _bitcast(self, arguments: list[Node], node: Node) -> Term:
        """`bitcast(u32, x)`. Of a narrow tensor's element, its own bits are taken."""
        name = arguments[0] if len(arguments) == 2 else None
        spelt = str(name.children[0]) if isinstance(name, Tree) and name.data == "name" else ""
        if spelt in BYTE_FLOAT_NAMES:
            return self._byte_float(spelt, self.build(arguments[1]), node)
        if spelt not in DTYPE_NAMES or spelt == "bool":
            raise fail("bitcast takes a dtype and a number, e.g. bitcast(u32, X[i])", node)
        dtype, term = DTYPE_NAMES[spelt], self.build(arguments[1])
        if term.literal or term.type == "bool":
            raise fail(f"bitcast takes a number of a known dtype, not {term.type}", node)
        source, bits = self._narrow(term)
        if DTYPE_BYTES[source] != DTYPE_BYTES[dtype]:
            raise fail(
                f"bitcast to {dtype} of {DTYPE_BYTES[dtype]} bytes, but {source} has "
                f"{DTYPE_BYTES[source]}; convert it first, e.g. u{8 * DTYPE_BYTES[dtype]}(…)",
                node,
            )
        value = bits if source == dtype else Bitcast(dtype, source, bits)
        computed = COMPUTED_IN.get(dtype, dtype)
        return Term(value if computed == dtype else Cast(computed, value), computed)

    def _byte_float(self, spelt: str, term: Term, node: Node) -> Term:
        """`bitcast(e4m3, x)`: the float of 8 bits that a byte stands for, as float32."""
        source, bits = self._narrow(term)
        if source != "uint8":
            raise fail(
                f"bitcast to {spelt} takes a byte, not {source}; e.g. bitcast({spelt}, X[i]) of "
                f"X: u8[N], or convert it, u8(…)",
                node,
            )
        return Term(Cast("float32", Bitcast(BYTE_FLOAT_NAMES[spelt], source, bits)), "float32")

    def _narrow(self, term: Term) -> tuple[DType, Scalar]:
        """The dtype and the scalar that a term was widened from, if it was, else its own."""
        match term.node:
            case Cast(arg=Read(tensor=tensor) as read) if tensor in self.tensors:
                dtype = self.tensors[tensor].dtype
                if COMPUTED_IN.get(dtype) == term.type:
                    return dtype, read
            case Cast(arg=(Cast(dtype=dtype) | Bitcast(dtype=dtype)) as narrow):
                if COMPUTED_IN.get(dtype) == term.type:
                    return dtype, narrow
        return cast(DType, term.type), term.node

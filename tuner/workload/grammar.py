"""The grammar of the notation, and parsing of a text to a tree with positions.

The length of a text is checked first, then its nesting, before anything is built whose
size grows with the text.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from typing import TypeAlias

from lark import Lark, Token, Tree, UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

from tuner.errors import WorkloadError

MAX_TEXT_BYTES = 16 * 1024
MAX_TOKENS = 2000  # words, numbers and signs; so many are read and checked within 100 ms
MAX_DEPTH = 32  # nesting of brackets, calls, conditionals and signs; a chain a + b + c is one level
MAX_TERMS = 128  # operands of one chain of operators
# operations from a leaf to the root of one right-hand side; trees are walked
# recursively everywhere
MAX_HEIGHT = 200

GRAMMAR = r"""
kernel: "kernel" NAME "(" param ("," param)* ")" ARROW "(" param ("," param)* ")" "{" stage+ "}"
param: NAME ":" NAME "[" sum ("," sum)* "]" fact?
?fact: "in" sum ":" sum NAME? -> within
     | "splits" sum NAME? -> splits
stage: NAME "[" place ("," place)* "]" (ASSIGN | REDUCE) expr ranges? ";"?
?place: NAME | NAME "[" expr ("," expr)* "]" -> read
ranges: "for" range ("," range)*
range: NAME "in" sum ":" sum

?expr: either | either "?" expr ":" expr -> select
?either: both ("or" both)*
?both: truth ("and" truth)*
?truth: "not" truth -> negation | comparison
?comparison: sum | sum COMPARE sum
?sum: product ((PLUS | MINUS) product)*
?product: signed (TIMES signed)*
?signed: MINUS signed -> minus | atom
?atom: NUMBER -> number
     | "inf" -> infinity
     | "true" -> true
     | "false" -> false
     | NAME -> name
     | NAME "[" expr ("," expr)* "]" pad? -> read
     | NAME "(" expr ("," expr)* ")" -> call
     | "(" expr ")"
pad: "else" MINUS? (NUMBER | INF)

REDUCE.2: /(\+|\*|max|min)=(?!=)/
COMPARE: "<=" | ">=" | "==" | "!=" | "<" | ">"
ASSIGN: "="
TIMES: "*" | "//" | "/" | "%"
ARROW: "->"
PLUS: "+"
MINUS: "-"
INF: "inf"
NUMBER: /(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?(?![\w.])/
NAME: /[A-Za-z_][A-Za-z0-9_]{0,63}(?![A-Za-z0-9_])/
COMMENT: /#[^\n]*/
%ignore COMMENT
%ignore /[ \t\r\n]+/
"""

Node: TypeAlias = "Tree[Token] | Token"

_PIECES = re.compile(r"#[^\n]*|\n|[A-Za-z_0-9.]+|[^\sA-Za-z_0-9.]")
_CHAINS = frozenset(("sum", "product", "either", "both"))
_NESTING = frozenset(("select", "negation", "minus", "read", "call", "comparison", *_CHAINS))
_DEEP = f"nested deeper than {MAX_DEPTH} levels; name a part of it as a stage of its own"
_LONG = f"more than {MAX_TOKENS} words and signs; split the text into several kernels"
_SHOWN = {
    "NAME": "a name",
    "NUMBER": "a number",
    "LSQB": "'['",
    "RSQB": "']'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "COMMA": "','",
    "COLON": "':'",
    "SEMICOLON": "';'",
    "ASSIGN": "'='",
    "REDUCE": "'+=', '*=', 'max=' or 'min='",
    "ARROW": "'->'",
    "PLUS": "'+'",
    "MINUS": "'-'",
    "TIMES": "'*', '/', '//' or '%'",
    "COMPARE": "a comparison",
    "QMARK": "'?'",
    "$END": "the end",
}


def position(node: Node) -> tuple[int, int]:
    """Line and column, from 1, of the first character of a node."""
    if isinstance(node, Token):
        return node.line or 1, node.column or 1
    return node.meta.line, node.meta.column


def fail(message: str, node: Node) -> WorkloadError:
    """The error to raise for a node of the parse tree."""
    line, column = position(node)
    return WorkloadError(message, line=line, column=column)


@cache
def _parser() -> Lark:
    """The parser, built for the first text in about 40 ms; most processes read none."""
    return Lark(
        GRAMMAR, start="kernel", parser="lalr", propagate_positions=True, maybe_placeholders=False
    )


def parse_tree(text: str) -> Tree[Token]:
    """The parse tree of a text.

    Raises `WorkloadError` with line and column if it is too long, too deep or not in
    the grammar.
    """
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_TEXT_BYTES:
        message = (
            f"the text has {size} bytes, the limit is {MAX_TEXT_BYTES}; split it into "
            f"several kernels"
        )
        raise WorkloadError(message, line=1, column=1)
    _check_pieces(text)
    try:
        tree = _parser().parse(text)
    except UnexpectedCharacters as error:
        rest = text[error.pos_in_stream or 0 :][:20].split("\n", maxsplit=1)[0]
        raise WorkloadError(
            f"cannot read {rest!r} here", line=error.line, column=error.column
        ) from None
    except UnexpectedToken as error:
        raise _unexpected(text, error) from None
    except UnexpectedEOF:
        raise _at_end(text, "the text ends too early") from None
    _check_depth(tree)
    return tree


def _check_pieces(text: str) -> None:
    """Refuse too many tokens and too deep brackets in one cheap pass before parsing."""
    depth, count, line, line_start = 0, 0, 1, 0
    for match in _PIECES.finditer(text):
        first = match.group()[0]
        if first == "\n":
            line, line_start = line + 1, match.end()
            continue
        depth += (first in "([{") - (first in ")]}")
        count += first != "#"
        if depth > MAX_DEPTH or count > MAX_TOKENS:
            raise WorkloadError(
                _DEEP if depth > MAX_DEPTH else _LONG,
                line=line,
                column=match.start() - line_start + 1,
            )


def _check_depth(tree: Tree[Token]) -> None:
    """Refuse deep nesting, long chains and high scalar trees, without recursion."""
    pending: list[tuple[Tree[Token], int]] = [(tree, 0)]
    order: list[Tree[Token]] = []
    while pending:
        node, depth = pending.pop()
        order.append(node)
        if depth > MAX_DEPTH:
            raise fail(_DEEP, node)
        if node.data in _CHAINS and len(node.children) > 2 * MAX_TERMS:
            raise fail(
                f"a chain of more than {MAX_TERMS} terms; write it as a reduction or split it "
                f"into stages",
                node,
            )
        deeper = depth + (node.data in _NESTING)
        pending.extend((child, deeper) for child in node.children if isinstance(child, Tree))
    heights: dict[int, int] = {}
    for node in reversed(order):
        below = max(
            (heights[id(child)] for child in node.children if isinstance(child, Tree)), default=0
        )
        heights[id(node)] = below + (
            len(node.children)
            if node.data in _CHAINS or node.data == "call"
            else node.data in _NESTING
        )
        if heights[id(node)] > 2 * MAX_HEIGHT:
            raise fail(
                f"more than {MAX_HEIGHT} operations in one another; split the expression "
                f"into stages",
                node,
            )


def _unexpected(text: str, error: UnexpectedToken) -> WorkloadError:
    expected = sorted(
        {_SHOWN.get(name, f"'{name.lower()}'") for name in error.accepts or error.expected}
    )
    hint = "" if len(expected) > 8 else "; expected " + " or ".join(expected)
    if error.token.type == "$END":
        return _at_end(text, "the text ends too early" + hint)
    return WorkloadError(
        f"unexpected {str(error.token)[:40]!r}{hint}", line=error.line, column=error.column
    )


def _at_end(text: str, message: str) -> WorkloadError:
    lines = text.rstrip().split("\n")
    return WorkloadError(message, line=len(lines), column=len(lines[-1]) + 1)


def suggestion(name: str, names: list[str]) -> str:
    """The end of a message about an unknown name: the close one of `names`, or nothing."""
    close = get_close_matches(name, names, 1)
    return f"; did you mean {close[0]!r}?" if close else ""

"""The notation: from a text of assignments over indexed tensors to an expression.

The language is described in docs/reference/notation.md. No part of the text is ever
evaluated as Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lark import Token, Tree

from tuner.errors import WorkloadError
from tuner.workload.budgets import BUDGETS, check_budgets
from tuner.workload.dtypes import DTYPE_NAMES
from tuner.workload.expression import Expression, Stage, Tensor, reads
from tuner.workload.grammar import Node, fail, parse_tree, suggestion
from tuner.workload.ragged_notation import declared_fact, is_fact
from tuner.workload.right_hand_sides import FUNCTIONS, TermBuilder
from tuner.workload.stage_reader import Declared, StageReader


def parse(text: str, shapes: Mapping[str, int]) -> Expression:
    """The expression of a text; `shapes` gives each shape symbol its extent.

    Raises `WorkloadError` with line and column of the first mistake. Takes less than
    100 ms for any text.
    """
    _check_shapes(shapes)
    tree = parse_tree(text)
    kernel = _Kernel(tree, shapes)
    expression = kernel.expression()
    try:
        check_budgets(expression)
    except WorkloadError as error:
        raise fail(str(error), tree) from None
    return expression


def _check_shapes(shapes: Mapping[str, int]) -> None:
    for name, extent in shapes.items():
        if isinstance(extent, bool) or not isinstance(extent, int):
            raise WorkloadError(f"shape {name}={extent!r} is not an integer", parameter=name)
        if not 0 <= extent <= BUDGETS.extent:
            raise WorkloadError(
                f"shape {name}={extent} is outside 0 to {BUDGETS.extent}", parameter=name
            )


class _Kernel:
    """Analyses the parse tree of one kernel."""

    def __init__(self, tree: Tree[Token], shapes: Mapping[str, int]) -> None:
        self.tree, self.shapes, self.used_symbols = tree, shapes, set[str]()
        self.name = str(tree.children[0])
        arrow = _outputs_start(tree)
        params = [
            child
            for child in tree.children[1:]
            if isinstance(child, Tree) and child.data == "param"
        ]
        self.stages = [
            child for child in tree.children if isinstance(child, Tree) and child.data == "stage"
        ]
        self.inputs: dict[str, Declared] = {}
        self.outputs: dict[str, Declared] = {}
        for number, param in enumerate(params):
            self._declare(param, self.inputs if number < arrow else self.outputs)

    def _declare(self, param: Tree[Token], into: dict[str, Declared]) -> None:
        name, type_name = (str(child) for child in param.children[:2])
        if name in self.inputs or name in self.outputs:
            raise fail(f"{name!r} is declared twice", param)
        if type_name not in DTYPE_NAMES:
            raise fail(
                f"unknown dtype {type_name!r}{suggestion(type_name, list(DTYPE_NAMES))}; known "
                f"are {', '.join(DTYPE_NAMES)}",
                param.children[1],
            )
        builder = TermBuilder({}, frozenset(), self.shapes, self.used_symbols)
        nodes = param.children[2:]
        stated = nodes.pop() if is_fact(nodes[-1]) else None
        shape = tuple(_extent(builder.constant(node), name, node) for node in nodes)
        if len(shape) > BUDGETS.dimensions:
            raise fail(
                f"{name} has {len(shape)} dimensions, the limit is {BUDGETS.dimensions}", param
            )
        tensor = Tensor(name=name, shape=shape, dtype=DTYPE_NAMES[type_name])
        if stated is not None:
            if into is self.outputs:
                raise fail(f"{name} is an output; facts are stated of inputs", stated)
            tensor = replace(tensor, fact=declared_fact(tensor, stated, builder))
        into[name] = Declared(tensor, param)

    def expression(self) -> Expression:
        if len(self.inputs) + len(self.stages) > BUDGETS.tensors:
            count = len(self.inputs) + len(self.stages)
            raise fail(
                f"{count} tensors, the limit is {BUDGETS.tensors}; split the kernel into several",
                self.tree,
            )
        names = self._stage_names()
        tensors = {name: declared.tensor for name, declared in self.inputs.items()}
        built: list[Stage] = []
        for number, node in enumerate(self.stages):
            later = frozenset(names[number:])
            built.append(
                StageReader(
                    node, tensors, later, self.outputs, self.shapes, self.used_symbols
                ).stage()
            )
            tensors[built[-1].name] = built[-1].tensor
        inputs = tuple(declared.tensor for declared in self.inputs.values())
        expression = Expression(
            name=self.name, inputs=inputs, stages=tuple(built), outputs=tuple(self.outputs)
        )
        self._check_used(expression)
        return expression

    def _stage_names(self) -> list[str]:
        names: list[str] = []
        for node in self.stages:
            name = str(node.children[0])
            if name in names:
                raise fail(
                    f"{name!r} is defined twice; a reduction starts by itself (+= from 0), "
                    f"other changes need a new name",
                    node,
                )
            if name in self.inputs:
                raise fail(
                    f"{name!r} is an input and cannot be written; give the result another name",
                    node,
                )
            if name in FUNCTIONS:
                raise fail(f"{name!r} is a function; give the stage another name", node)
            names.append(name)
        for name, declared in self.outputs.items():
            if name not in names:
                raise fail(
                    f"output {name!r} is never defined; add a stage {name}[…] = …", declared.node
                )
        return names

    def _check_used(self, expression: Expression) -> None:
        needed = set(expression.outputs)
        for stage in reversed(expression.stages):
            if stage.name in needed:
                needed |= {read.tensor for read in reads(stage.body)}
        for stage, node in zip(expression.stages, self.stages, strict=True):
            if stage.name not in needed:
                raise fail(
                    f"stage {stage.name!r} is never used; read it, make it an output, or remove it",
                    node,
                )
        for name, declared in self.inputs.items():
            if name not in needed:
                raise fail(f"input {name!r} is never used; read it or remove it", declared.node)
        for symbol in self.shapes:
            if symbol not in self.used_symbols:
                used = ", ".join(sorted(self.used_symbols)) or "none"
                raise WorkloadError(
                    f"unknown shape symbol {symbol!r}; the text uses {used}", parameter=symbol
                )


def _outputs_start(tree: Tree[Token]) -> int:
    """Number of parameters before the arrow, which are the inputs."""
    for number, child in enumerate(tree.children[1:]):
        if isinstance(child, Token) and child.type == "ARROW":
            return number
    return 0


def _extent(value: int, name: str, node: Node) -> int:
    if not 1 <= value <= BUDGETS.extent:
        raise fail(f"{name} has an extent of {value}; extents are 1 to {BUDGETS.extent}", node)
    return value

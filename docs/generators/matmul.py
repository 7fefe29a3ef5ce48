"""Writes docs/explanation/matmul.md: one workload followed from its text to assembly.

Run as `python -m docs.generators.matmul > docs/explanation/matmul.md`. The dumps are the
real ones, of a fixed made-up target, so they are the same on every x86-64 machine. A
test holds the page to them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import MISSING, fields

from tuner.lowering.compiler import Compiled, compile_program
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Space, Value
from tuner.spaces.program.program import Block, Program, Step
from tuner.spaces.rewrite.groups import Group, TileGroup
from tuner.target.target import Target
from tuner.workload.catalogue import operator
from tuner.workload.expression import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expression,
    Read,
    Scalar,
    Select,
    Stage,
    Unary,
    Var,
)
from tuner.workload.spec import parse_spec

SPEC = "dense:M=64,N=64,K=64,bias=true,act=relu"
TARGET = Target(
    key="example", kind="cpu", name="example", tvm={"kind": "llvm", "mcpu": "x86-64-v3"}, isa=(),
    vector_bytes=32,
    vector_registers=16, cores=2, l1d_bytes=32768, l2_bytes=1048576, l3_bytes=33554432,
)  # fmt: skip
CONFIG: dict[str, Value] = {
    "sketch": "Y:tile_j",
    "Y.tile_j.register": (6, 16),
    "Y.tile_j.outer_order": (1, 0),
    "Y.tile_j.depth": 64,
    "Y.tile_j.copy1_W": "pack",
    "Y.tile_j.unroll": (0, 2),
}
SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "floormod": "%", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
REDUCERS = {"sum": "+=", "prod": "*=", "max": "max=", "min": "min="}
MACHINE_PARTS = "## Assembly"  # what follows this heading depends on the processor that builds it


def scalar(node: Scalar) -> str:
    """A scalar tree in the notation's words."""
    match node:
        case Var(name=name):
            return name
        case Const(value=value):
            return f"{value:g}" if isinstance(value, float) else str(value)
        case Read(tensor=tensor, indices=indices):
            return f"{tensor}[{', '.join(map(scalar, indices))}]"
        case Unary(op=op, arg=arg):
            return f"{op}({scalar(arg)})"
        case Cast(dtype=dtype, arg=arg):
            return f"{dtype}({scalar(arg)})"
        case Bitcast(dtype=dtype, arg=arg):
            return f"bitcast({dtype}, {scalar(arg)})"
        case Binary(op=op, lhs=lhs, rhs=rhs) if op in SIGNS:
            return f"{operand(lhs)} {SIGNS[op]} {operand(rhs)}"
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return f"{op}({scalar(lhs)}, {scalar(rhs)})"
        case Select(cond=cond, then=then, other=other):
            return f"({scalar(then)} if {scalar(cond)} else {scalar(other)})"


def operand(node: Scalar) -> str:
    text = scalar(node)
    return f"({text})" if isinstance(node, Binary) and node.op in ("add", "sub") else text


def ranges(extents: dict[str, int]) -> str:
    return ", ".join(f"{name} < {extent}" for name, extent in extents.items())


def stage_text(stage: Stage) -> str:
    sign = REDUCERS[stage.reducer] if stage.reducer else "="
    indices = ", ".join(axis.name for axis in stage.axes)
    return f"{stage.name}[{indices}] {sign} {scalar(stage.body)}   for {ranges(stage.extents)}"


def expression_text(expression: Expression) -> str:
    inputs = [f"{tensor.name}: {tensor.dtype}{list(tensor.shape)}" for tensor in expression.inputs]
    lines = [f"inputs  {', '.join(inputs)}", f"outputs {', '.join(expression.outputs)}"]
    return "\n".join([*lines, *map(stage_text, expression.stages)])


def groups_text(groups: Iterable[Group]) -> str:
    lines = []
    for group in groups:
        assert isinstance(group, TileGroup)
        lines += [f"group {group.name}", f"  anchor    {stage_text(group.anchor)}"]
        if group.epilogue:
            lines.append(f"  epilogue  {stage_text(group.epilogue)}")
    return "\n".join(lines)


def space_text(space: Space) -> str:
    lines = [f"{space.size:,} configs"]
    for combination in space.combinations:
        lines.append(f"{combination.name}: {combination.size:,} configs")
        if combination.name == CONFIG["sketch"]:
            for knob in combination.knobs:
                listed = ", ".join(map(str, knob.values[:6]))
                more = f", … ({len(knob.values)} in all)" if len(knob.values) > 6 else ""
                lines.append(f"  {knob.name:<22} {listed}{more}")
    return "\n".join(lines)


def block_text(block: Block) -> str:
    sign = REDUCERS[block.reducer] if block.reducer else "="
    indices = ", ".join(map(scalar, block.indices))
    loops = ranges(block.extents)
    return f"{block.buffer}[{indices}]\n  {sign} {scalar(block.body)}\n  for {loops}"


def step_text(step: Step) -> str:
    """A step with the fields that differ from their defaults."""
    given = []
    for field in fields(step):
        value = getattr(step, field.name)
        if field.default is MISSING or value != field.default:
            given.append(f"{field.name}={value!r}")
    return f"{type(step).__name__}({', '.join(given)})"


def program_text(program: Program) -> str:
    buffers = [
        f"buffer {buffer.name}: {buffer.dtype}{list(buffer.shape)}, {buffer.scope}"
        for buffer in program.buffers
    ]
    return "\n\n".join(["\n".join(buffers), *map(block_text, program.blocks)])


def loops_text(compiled: Compiled) -> str:
    """The loops of the scheduled module: TVMScript without the lines that declare axes
    and regions."""
    kept = [
        line.replace("        ", "", 1)
        for line in compiled.sources["tvmscript"].splitlines()
        if re.match(r"\s+(for|Y\w* = |Y\w*\[|with T.sblock\(\"Y)", line)
    ]
    return "\n".join(line.replace("    ", "  ") for line in kept)


def innermost_text(assembly: str) -> str:
    """The loop with the most multiply-adds per line, from its label to its jump."""
    lines = [line for line in assembly.splitlines() if not re.match(r"\.Ltmp|\s+\.|\s*#", line)]
    labels = {line[:-1]: number for number, line in enumerate(lines) if re.match(r"\.L\w+:", line)}
    best: list[str] = []
    for number, line in enumerate(lines):
        jump = re.match(r"\s+j\w+\s+(\.L\w+)$", line)
        if jump and (begin := labels.get(jump[1], number)) < number:
            body = lines[begin : number + 1]
            if not any(other.startswith(".") for other in body[1:]) and fused(body) > fused(best):
                best = body
    return "\n".join(line.replace("\t", "  ").rstrip() for line in best)


def fused(lines: list[str]) -> int:
    return sum("vfmadd" in line for line in lines)


def page() -> str:
    workload = parse_spec(SPEC)
    dense = operator("dense")
    target_space = space_of(workload, TARGET, 1)
    program = target_space.program(CONFIG)
    compiled = compile_program(program, TARGET, "dense")
    innermost = innermost_text(compiled.sources["asm"])
    config = "\n".join(f"{name:<20} {value}" for name, value in CONFIG.items())
    steps = "\n".join(map(step_text, program.steps))
    return PAGE.format(
        spec=SPEC,
        notation=dense.text(dense.filled({"M": 64, "N": 64, "K": 64, "bias": True, "act": "relu"})),
        expression=expression_text(workload.expression),
        groups=groups_text(target_space.algorithm.groups),
        space=space_text(target_space.space),
        config=config,
        program=program_text(program),
        steps=steps,
        loops=loops_text(compiled),
        assembly=innermost,
        instructions=len(innermost.splitlines()) - 1,
        fused=fused(innermost.splitlines()),
    )


PAGE = """# One matrix product, followed

A product with bias and ReLU, from its text to the instructions of its innermost loop. Every dump on
this page is real: `python -m docs.generators.matmul` writes it, for a made-up CPU with AVX2 (8
floats in a vector, 16 vector registers) and one thread.

Each step is one folder of the code:

| step | folder |
|---|---|
| text → expression | `tuner/workload` |
| expression → groups | `tuner/spaces/rewrite` |
| group → sketches and knobs | `tuner/spaces/cpu` |
| config → program | `tuner/spaces/program` |
| program → TensorIR → machine code | `tuner/lowering` |

## The text

The command line says `{spec}`. The operator is a program in the
[notation](../reference/notation.md):

```
{notation}
```

## Expression

The parser makes a tree of *stages*. A stage defines one tensor. Names and types are resolved, and
extents are numbers:

```
{expression}
```

The workload's key is a hash of this tree, with iterators renamed. Two texts that mean the same have
the same key.

## Groups

Stages that become one loop nest are a *group*. Elementwise stages are inlined into what reads them.
What is done point by point to the result of a reduction becomes the *epilogue* of the reduction:

```
{groups}
```

Groups follow from the structure of the stages. No operator's name is looked at.

## Sketches and knobs

Each group is offered to every sketch of the target. A *sketch* is one structure of loop nest with
open *knobs*:

```
{space}
```

`tile_j` puts the vector lanes along `j`, `tile_i` along `i`, `lanes` along the reduction. A
register tile is offered only where its accumulators fit the registers.

A *config* chooses a value for each knob. This page follows one; knobs that it does not name have
their first value:

```
{config}
```

## Program

The sketch makes a *program* of the config. First, blocks over buffers. The tiles are in the axes
and indices. `i` becomes 6 rows of a register tile (`i_0`) and 11 tiles (`i_2`). `j` becomes 8
vector lanes (`j_l`), 2 vectors (`j_0`) and 4 tiles (`j_2`).

```
{program}
```

Six does not divide 64. So the last tile is moved back: `min(i_2 * 6, 58)`. It computes a few rows a
second time and writes the same values. There is no predicate in the loop and no padding.

`W` is read along `k`, but the vector lanes go along `j`. So `W` is packed: copied tile by tile, so
that the lanes lie side by side.

Second, an ordered list of *steps* on the blocks. They nest, place, vectorise and unroll:

```
{steps}
```

## TensorIR

`tuner/lowering` turns blocks into a TVM module and steps into TVM's own schedule primitives. These
are the loops of the scheduled module; lines that declare axes and regions are left out:

```
{loops}
```

Passes of `tuner/lowering/passes` take over from here: the packed copy is transposed in registers,
and the loop that is marked `tuner_roll` stays a loop.

## Assembly

LLVM compiles the module. This is the loop over the reduction, the innermost one that is left:

```
{assembly}
```

It has {instructions} instructions, {fused} of them fused multiply-adds of 8 floats. The loop does
two steps of the reduction. The 12 accumulators of the 6 by 16 register tile stay in registers:
nothing is stored in the loop.

## What comes next

The object code is linked with the [runtime](runtime.md) into a library. A runner loads, checks and
times it: [measurement](measurement.md). The search learns from the time and chooses the next
config: [how search works](search.md).
"""


if __name__ == "__main__":
    sys.stdout.write(page())

"""Writes docs/reference/knobs.md: every role of a knob, with values of real spaces.

Run as `python -m docs.generators.knobs > docs/reference/knobs.md`. The spaces are those of
a few workloads on two fixed targets. A test holds the page to the declarations.
"""

from __future__ import annotations

import sys
from textwrap import fill

from docs.generators.matmul import TARGET
from tuner.spaces.by_target import space_of
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Knob
from tuner.target.detect import parse_target
from tuner.target.target import Target
from tuner.workload.spec import parse_spec

WORKLOADS = (
    "matmul:M=512,N=512,K=512",
    "matmul:M=512,N=512,K=512,dtype=float16",
    "softmax:M=64,N=1000",
    "layer_norm:M=4096,N=1024",
    "conv2d:N=1,H=28,W=28,CI=32,CO=64,KH=3,KW=3,pad=1",
    "transpose:M=1024,N=1024",
    "elementwise:M=4096,N=4096,act=gelu",
    "matmul:M=1024,N=1024,K=1024,dtype=float16",
)
SHOWN = 5  # values of a knob
COMMON = {
    "sketch": "Which combination of sketches: one sketch for each group. The first knob of every "
    "space.",
    "unroll": "How far loops are unrolled. CPU: for each spatial axis of the tile, then the "
    "reduction; of rows that stream, the loops of both products; of groups placed in tiles, long "
    "reductions. GPU: iterations of the reduction.",
}
CPU = {
    "register": "The register tile: elements of each spatial axis that stay in registers, the "
    "vectorised axis in whole vectors. Of rows: rows at a time and elements of the column. Of "
    "rows that stream: rows, points of the streamed axis, and columns of the sums; of single "
    "ones points and columns. Of groups placed in tiles one knob for each that reduces, with its "
    "rows and vectors.",
    "block_": "Elements of one axis in a cache block; 0 for none.",
    "outer_order": "The order of the cache blocks' loops, as a permutation of the spatial axes.",
    "inner_order": "The order of the register tiles' loops within a block, likewise.",
    "depth": "Iterations of the reduction in a block. Of rows that stream: points that are "
    "computed before they are summed; of single ones the parts of a row besides.",
    "copy": "How a read is made: in place, from a padded copy, or from a packed copy, a part at a "
    "time (`pack`) or all of it before any loop (`pack_root`).",
    "keep_": "Whether a stage between two others is kept in memory or computed twice.",
    "ahead": "How far ahead lines are prefetched; 0 for not at all.",
    "stores": "Whether outputs are written through the caches or past them (`streamed`: "
    "non-temporal stores).",
    "mathematics": "Where exp, tanh and others come from: our polynomials, or the C library.",
}
GPU = {
    "tile": "The tile of a thread block, all levels in one knob so that they fit together: "
    "threads, registers and vector lanes of each axis, then the depth of a reduction. "
    "Of tensor cores: warps and fragments of both sides. On CPUs, of groups placed in tiles: "
    "extents along the axes of the last group, those that it reduces over last.",
    "shape": "Of rows: threads along rows and columns, elements of a thread, and what is kept.",
    "fetch": "How a read is made: directly, or from a copy in shared memory with so many elements "
    "a load, transposed (`turned`) or not, rows stretched (`padded`) or not.",
    "rows": "Whether rows in shared memory are stretched, against bank conflicts.",
    "pipeline": "Whether copies overlap with computing: through registers, or asynchronously with "
    "so many copies in shared memory.",
    "warp": "Rows of threads that a warp covers; 0 for the order of the threads.",
    "order": "The order in which blocks of the grid walk the output.",
    "split": "Whether blocks have whole tiles alone, or share the depth of some so that none of "
    "them stands idle (`stream-k`). Offered where a wave of tiles would not fill the GPU.",
}


def examples(target: Target) -> dict[KnobRole, tuple[str, Knob]]:
    """For each role of the target's spaces the knob with the most values, of the first workload
    that has one."""
    chosen: dict[KnobRole, tuple[str, Knob]] = {}
    for spec in WORKLOADS:
        space = space_of(parse_spec(spec), target, 1).space
        largest: dict[KnobRole, Knob] = {}
        for knob in space.knobs:
            if len(knob.values) > len(getattr(largest.get(knob.role), "values", ())):
                largest[knob.role] = knob
        for role, knob in largest.items():
            chosen.setdefault(role, (spec, knob))
    return chosen


def sections(texts: dict[str, str], target: Target) -> str:
    """A section for each role, in the order of `texts`."""
    chosen = examples(target)
    parts = []
    for word, text in texts.items():
        spec, knob = chosen[KnobRole(word)]
        listed = ", ".join(f"`{value}`" for value in knob.values[:SHOWN])
        more = f", … ({len(knob.values):,} values)" if len(knob.values) > SHOWN else ""
        parts.append(
            f"### {word}\n\n{wrapped(text)}\n\n"
            f"- Example: `{knob.name}` of `{spec}`\n"
            + fill(f"- Values: {listed}{more}", 100, subsequent_indent="  ", break_on_hyphens=False)
            + "\n"
        )
    return "\n".join(parts)


def wrapped(text: str) -> str:
    return fill(text, 100, break_long_words=False, break_on_hyphens=False)


def page() -> str:
    return PAGE.format(
        common=sections(COMMON, TARGET),
        cpu=sections(CPU, TARGET),
        gpu=sections(GPU, parse_target("cuda:sm_90")),
    )


PAGE = """# Knobs

A knob is one open choice of a sketch. `tuner space SPEC` prints the knobs of one space. A knob's
stored name is `<group>.<sketch>.<word><subject>`: the word says what it decides and is one of those
below. The subject is an axis (`block_i`), a read (`copy0_A`) or a stage (`keep_E`). Names and
values are stored with trials, so they never change.

Values stand in an order in which neighbours are alike, and the first one is the default. Knobs of a
sketch are independent: what must fit together, such as the axes of a register tile, is one knob. So
the size of a space is an exact product.

The examples are of a CPU with AVX2 and of `cuda:sm_90`. `python -m docs.generators.knobs` writes
this page from the declarations.

## On every target

{common}
## On CPUs

{cpu}
## On GPUs

{gpu}"""


if __name__ == "__main__":
    sys.stdout.write(page())

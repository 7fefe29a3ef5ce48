"""Strategies of random valid tensor programs for every suite: small odd extents,
several stages, all kinds of reads.

Programs are made as texts of the notation; whether a read stays inside its tensor is
found by enumeration, not by the product. A benchmark races kernels of programs from
here too, with larger extents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

from hypothesis import strategies as st

from tuner.workload.expression import Expression
from tuner.workload.notation import parse

EXTENTS = (1, 2, 3, 4, 5, 7)
FLOATS = ("f32", "f32", "f32", "f64", "f16", "bf16")


@dataclass(frozen=True)
class Index:
    """One index of a read: its text and its values over all iterators it stands on."""

    text: str
    uses: tuple[str, ...]
    values: tuple[int, ...]


@dataclass
class _Program:
    inputs: dict[str, tuple[str, tuple[int, ...]]] = field(
        default_factory=dict
    )  # name -> (dtype, shape)
    stages: list[str] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of inputs and stages


@st.composite
def indices(draw: st.DrawFn, iterators: dict[str, int]) -> Index:
    """An index over up to two iterators: affine, or with floor division or modulo by a constant."""
    names = sorted(iterators)
    form = draw(
        st.sampled_from(
            (
                "alone",
                "alone",
                "alone",
                "scaled",
                "sum",
                "difference",
                "floordiv",
                "floormod",
                "halved",
                "constant",
            )
        )
    )
    first, second = draw(st.sampled_from(names)), draw(st.sampled_from(names))
    a, b, c = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(-2, 2))
    sign = "-" if c < 0 else "+"
    forms: dict[str, tuple[str, tuple[str, ...], Callable[[int, int], int]]] = {
        "alone": (first, (first,), lambda x, y: x),
        "scaled": (f"{a}*{first} {sign} {abs(c)}", (first,), lambda x, y: a * x + c),
        "sum": (
            f"{a}*{first} + {b}*{second} {sign} {abs(c)}",
            (first, second),
            lambda x, y: a * x + b * y + c,
        ),
        "difference": (
            f"{first} - {b}*{second} {sign} {abs(c)}",
            (first, second),
            lambda x, y: x - b * y + c,
        ),
        "floordiv": (f"{first} // {a}", (first,), lambda x, y: x // a),
        "floormod": (f"({first} {sign} {abs(c)}) % {a}", (first,), lambda x, y: (x + c) % a),
        "halved": (
            f"({first} + {second} {sign} {abs(c)}) // 2",
            (first, second),
            lambda x, y: (x + y + c) // 2,
        ),
        "constant": (str(abs(c)), (), lambda x, y: abs(c)),
    }
    text, uses, function = forms[form]
    spans = range(iterators[first]), range(iterators[second])
    same = first == second
    values = tuple(function(x, x if same else y) for x, y in product(*spans) if not same or x == y)
    return Index(text, tuple(dict.fromkeys(uses)), values)


@st.composite
def reads(
    draw: st.DrawFn,
    name: str,
    shape: tuple[int, ...],
    iterators: dict[str, int],
    *,
    may_leave: bool = False,
) -> tuple[str, set[str]]:
    """A read of a tensor as text, padded wherever it could leave it, and the iterators in it."""
    chosen = [draw(indices(iterators)) for _ in shape]
    leaves = any(
        not 0 <= value < extent
        for index, extent in zip(chosen, shape, strict=True)
        for value in index.values
    )
    bare = f"{name}[{', '.join(index.text for index in chosen)}]"
    used = {iterator for index in chosen for iterator in index.uses}
    if not may_leave and (
        leaves
        or draw(st.integers(0, 9)) == 0
        or any("%" in index.text or "//" in index.text for index in chosen)
    ):
        pad = draw(st.sampled_from(("0", "1", "-2")))
        return f"({bare} else {pad})", used
    return bare, used


@st.composite
def _bodies(draw: st.DrawFn, factors: list[str], whole: bool) -> str:
    first = factors[0]
    if len(factors) == 1 and whole:
        return draw(
            st.sampled_from(
                (
                    first,
                    f"abs({first})",
                    f"max({first}, 0)",
                    f"{first} * 3 - 1",
                    f"-{first}",
                    f"{first} // 3 + {first} % 5",
                )
            )
        )
    if len(factors) == 1:
        return draw(
            st.sampled_from(
                (
                    first,
                    f"abs({first})",
                    f"max({first}, 0)",
                    f"tanh({first})",
                    f"{first} * 0.5 + 1",
                    f"-{first}",
                )
            )
        )
    second = factors[1]
    quarter = f"{second} // 4" if whole else f"{second} * 0.25"
    texts = (
        f"{first} * {second}",
        f"{first} * {second}",
        f"{first} + {second}",
        f"max({first}, {second})",
        f"where({first} > {second}, {first}, {quarter})",
        f"{first} > 0 ? {second} : {first} - 1",
    )
    return draw(st.sampled_from(texts))


@st.composite
def programs(
    draw: st.DrawFn,
    *,
    dtypes: tuple[str, ...] = FLOATS,
    max_stages: int = 4,
    extents: tuple[int, ...] = EXTENTS,
) -> str:
    """A text of the notation without shape symbols: every input and stage is used,
    every read in bounds or padded.

    The largest of `extents` is not drawn for reductions.
    """
    program = _Program()
    dtype = draw(st.sampled_from(dtypes))
    count = draw(st.integers(1, max_stages))
    for number in range(count):
        rank = draw(st.integers(1, 3))
        kept = {f"i{axis}": draw(st.sampled_from(extents)) for axis in range(rank)}
        reduced = {
            f"r{axis}": draw(st.sampled_from(extents[:-1]))
            for axis in range(draw(st.integers(0, 2)))
        }
        sources = [f"T{number - 1}"] if number else []
        sources += [
            _input(draw, program, dtype, extents)
            for _ in range(draw(st.integers(0 if sources else 1, 1)))
        ]
        made = [draw(reads(name, program.shapes[name], {**kept, **reduced})) for name in sources]
        used = set[str]().union(*(names for _, names in made))
        ranges = [
            f"{name} in 0:{extent}"
            for name, extent in {**kept, **reduced}.items()
            if name in kept or name in used
        ]
        reducing = any(name in used for name in reduced)
        assign = draw(st.sampled_from(("+=", "+=", "+=", "max=", "min="))) if reducing else "="
        body = draw(_bodies([text for text, _ in made], dtype[0] in "iu"))
        name = "Y" if number == count - 1 else f"T{number}"
        program.stages.append(
            f"  {name}[{', '.join(kept)}] {assign} {body} for {', '.join(ranges)}"
        )
        program.shapes[name] = tuple(kept.values())
    declared = ", ".join(
        f"{name}: {kind}[{', '.join(map(str, shape))}]"
        for name, (kind, shape) in program.inputs.items()
    )
    output = ", ".join(map(str, program.shapes["Y"]))
    return (
        f"kernel random({declared}) -> (Y: {dtype}[{output}]) {{\n"
        + "\n".join(program.stages)
        + "\n}"
    )


def _input(draw: st.DrawFn, program: _Program, dtype: str, extents: tuple[int, ...]) -> str:
    name = f"X{len(program.inputs)}"
    shape = tuple(draw(st.lists(st.sampled_from(extents), min_size=1, max_size=3)))
    program.inputs[name] = (dtype, shape)
    program.shapes[name] = shape
    return name


def expressions(
    *, dtypes: tuple[str, ...] = FLOATS, max_stages: int = 4
) -> st.SearchStrategy[Expression]:
    """Random valid expressions of one dtype each; `dtypes` names those to draw from as
    the notation writes them."""
    return programs(dtypes=dtypes, max_stages=max_stages).map(lambda text: parse(text, {}))

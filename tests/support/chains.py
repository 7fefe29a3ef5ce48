"""Random programs whose stages reduce one after the other: products, windows, whole rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.workload.spec import workload_from_notation
from tuner.workload.workload import Workload

REDUCERS = ("+=", "+=", "+=", "max=", "min=")
# What a stage does with a value on its way to the next one.
MAPS = ("{}", "max({}, 0)", "{} * 0.5 + 1", "tanh({})", "{} + bias{n}[{j}]")


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A program in the notation, with its extents."""

    text: str
    extents: dict[str, int]

    @property
    def workload(self) -> Workload:
        return workload_from_notation(self.text, self.extents)


def random_chain(rng: np.random.Generator, reductions: int) -> Chain:
    """A chain of so many reductions over a matrix, each of them of a kind drawn for it.

    Extents are small and mostly divide nothing.
    """
    extents = {"M": int(rng.integers(2, 14)), "N0": int(rng.integers(2, 20))}
    inputs, lines = ["X: f32[M, N0]"], []
    source = "X"
    for n in range(1, reductions + 1):
        kind = str(rng.choice(["product", "window", "columns", "stencil"]))
        reducer = str(rng.choice(REDUCERS))
        last, width = f"N{n - 1}", f"N{n}"
        place, ranges = "i, j", f"for i in 0:M, j in 0:{width}"
        if kind == "product":
            extents[width] = int(rng.integers(2, 20))
            turned = bool(rng.random() < 0.5)
            inputs.append(
                f"W{n}: f32[{width}, {last}]" if turned else f"W{n}: f32[{last}, {width}]"
            )
            weight = f"W{n}[j, k]" if turned else f"W{n}[k, j]"
            body = f"{{}} * {weight}"
            read = f"{source}[i, k]"
        elif kind == "window":
            step = int(rng.integers(1, 3))
            extents[width] = -(-extents[last] // step)
            inputs.append(f"F{n}: f32[3]")
            body = f"{{}} * F{n}[s]"
            read = f"({source}[i, {step} * j + s - 1] else 0)"
        elif kind == "columns":
            extents[width] = extents[last]
            inputs.append(f"C{n}: f32[3, {last}]")
            body = f"{{}} * C{n}[r, j]"
            read = f"({source}[i + r - 1, j] else 0)"
        else:
            extents[width] = extents[last]
            inputs.append(f"S{n}: f32[3, 3]")
            body = f"{{}} * S{n}[r, s]"
            read = f"({source}[i + r - 1, j + 1 - s] else 0)"
        target = "O" if n == reductions else f"T{n}"
        lines.append(f"{target}[{place}] {reducer} {body.format(read)} {ranges}")
        source = target
        if n < reductions and rng.random() < 0.6:
            change = str(rng.choice(MAPS))
            if "bias" in change:
                inputs.append(f"bias{n}: f32[{width}]")
            value = change.format(f"T{n}[i, j]", n=n, j="j")
            lines.append(f"A{n}[i, j] = {value}")
            source = f"A{n}"
    body = "\n  ".join(lines)
    shape = f"M, N{reductions}"
    text = f"kernel chain({', '.join(inputs)}) -> (O: f32[{shape}]) {{\n  {body}\n}}"
    return Chain(text=text, extents=extents)

"""Programs that multiply a softmax, put together from parts: each is a row that may stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.workload.spec import workload_from_notation
from tuner.workload.workload import Workload

# Conditions on the row i and the streamed point j under which a score counts.
MASKS = ("", "j <= i", "j <= i + 3", "j > i - 4 and j <= i + 1", "j >= i", "mask[i, j] > 0")
# How the weights become the result.
ENDINGS = ("weights", "division", "epilogue", "unnormalised", "logarithm")


@dataclass(frozen=True, kw_only=True)
class Rows:
    """One program's parts; `text` says it in the notation."""

    mask: str = ""
    ending: str = "weights"
    bias: bool = False
    cap: bool = False
    heads: int = 2
    sharing: int = 1  # heads that share keys and values
    rows: int = 9
    points: int = 11
    width: int = 5
    columns: int = 6
    dtype: str = "f32"
    product: bool = True  # whether scores are a product or given

    @property
    def text(self) -> str:
        """The program in the notation."""
        group = "h" if self.sharing == 1 else f"h // {self.sharing}"
        inputs = [f"V: {self.dtype}[G, N, C]"]
        lines = []
        if self.product:
            inputs += [f"Q: {self.dtype}[H, M, D]", f"K: {self.dtype}[G, N, D]"]
            lines.append(f"S[h, i, j] += Q[h, i, d] * K[{group}, j, d]")
        else:
            inputs.append("S: f32[H, M, N]")
        score = "S[h, i, j] * 0.3"
        if self.bias:
            inputs.append("bias: f32[H, N]")
            score = f"{score} + bias[h, j]"
        if self.cap:
            score = f"tanh(({score}) / 5) * 5"
        if "mask[" in self.mask:
            inputs.append("mask: i32[M, N]")
        lines.append(
            f"P[h, i, j] = where({self.mask}, {score}, -inf)"
            if self.mask
            else f"P[h, i, j] = {score}"
        )
        lines += ["m[h, i] max= P[h, i, j]", "e[h, i, j] = exp(P[h, i, j] - m[h, i])"]
        if self.ending != "unnormalised":
            lines.append("s[h, i] += e[h, i, j]")
        value = f"V[{group}, j, c]"
        lines += {
            "weights": ["w[h, i, j] = e[h, i, j] / s[h, i]", f"O[h, i, c] += w[h, i, j] * {value}"],
            "division": [
                f"a[h, i, c] += e[h, i, j] * {value}",
                "O[h, i, c] = a[h, i, c] / s[h, i]",
            ],
            "epilogue": [
                f"a[h, i, c] += e[h, i, j] / s[h, i] * {value}",
                "O[i, h, c] = max(a[h, i, c], 0) * 2",
            ],
            "unnormalised": [f"O[h, i, c] += e[h, i, j] * {value}"],
            "logarithm": [
                f"a[h, i, c] += e[h, i, j] * {value}",
                "O[h, i, c] = a[h, i, c] * exp(0 - m[h, i] - log(s[h, i]))",
            ],
        }[self.ending]
        shape = "M, H, C" if self.ending == "epilogue" else "H, M, C"
        body = "\n  ".join(lines)
        return f"kernel rows({', '.join(inputs)}) -> (O: f32[{shape}]) {{\n  {body}\n}}"

    @property
    def workload(self) -> Workload:
        """The program with its extents."""
        extents = {
            "H": self.heads * self.sharing,
            "G": self.heads,
            "M": self.rows,
            "N": self.points,
            "C": self.columns,
        }
        if self.product:
            extents["D"] = self.width
        return workload_from_notation(self.text, extents)


def random_rows(rng: np.random.Generator) -> Rows:
    """Any program; extents are small and mostly divide nothing."""
    product = bool(rng.random() < 0.85)
    return Rows(
        mask=str(rng.choice(MASKS)),
        ending=str(rng.choice(ENDINGS)),
        bias=bool(rng.random() < 0.4),
        cap=bool(rng.random() < 0.3),
        heads=int(rng.integers(1, 4)),
        sharing=int(rng.integers(1, 4)),
        rows=int(rng.integers(2, 14)),
        points=int(rng.integers(2, 20)),
        width=int(rng.integers(1, 9)),
        columns=int(rng.integers(2, 9)),
        dtype=str(rng.choice(["f32", "f32", "bf16", "f16"])),
        product=product,
    )

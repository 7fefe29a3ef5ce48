"""A workload: an expression with its source, declared constants, numerics and key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tuner.workload.expression import Expression

# Each admits what those before it do: docs/explanation/numerics.md.
Numerics = Literal["strict", "fast", "tensor"]
ModelNumerics = Literal["strict", "fast"]  # of a whole model's kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is tuned: a tensor program with everything that may change its kernel."""

    expression: Expression  # concrete shapes and dtypes
    key: str  # SHA-256 of the canonical, alpha-renamed tree with constants and numerics, hex
    op: str | None = None  # catalogue operator, None for notation and lifted programs
    # of the operator, defaults filled in
    params: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    notation: str | None = None  # the text, where the workload came as one
    shapes: Mapping[str, int] = field(default_factory=dict)  # symbol -> extent, for the notation
    constants: tuple[str, ...] = ()  # inputs known ahead of time, may be prepacked
    numerics: Numerics = "strict"

    @property
    def spec(self) -> str:
        """The spec of a catalogue workload, else the name of the kernel.

        `parse_spec` reads a spec back.
        """
        if self.op is None:
            return self.expression.name
        parts = [
            f"{name}={str(value).lower() if isinstance(value, bool) else value}"
            for name, value in self.params.items()
        ]
        parts += [f"const={'+'.join(self.constants)}"] if self.constants else []
        parts += [f"numerics={self.numerics}"] if self.numerics != "strict" else []
        return self.op + ":" + ",".join(parts)

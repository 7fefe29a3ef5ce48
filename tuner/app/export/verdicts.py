"""What `tuner verify` says of an exported library and of each of its functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.errors import TunerError
from tuner.export.manifest import Manifest
from tuner.target.target import Target


class VerificationError(TunerError):
    """A function of an exported library cannot run here, or gives wrong answers."""

    code = "verification"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retimed:
    """A function that gave right answers on unseen inputs, with its time here."""

    max_rel_error: float
    median_s: float
    ci95_s: tuple[float, float]
    ratio: float | None  # of this median to the manifest's; None where that one is 0
    threads: int  # of this run: those it was tuned for, or as many as this machine has
    sanitized: tuple[str, ...] = ()  # tools of compute-sanitizer that reported nothing
    # Seconds of a call of its variants, by level of CPU, where this machine can run them.
    variants: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionVerdict:
    """What became of one function."""

    symbol: str
    spec: str  # of its workload; the symbol where the workload cannot be read
    manifest_median_s: float
    same_target: bool  # whether it was tuned for this machine, so that times compare
    result: Retimed | VerificationError


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryVerdict:
    """What became of an exported library."""

    manifest: Manifest
    machine: Target
    seed: int  # of the inputs
    functions: tuple[FunctionVerdict, ...]
    unlisted: tuple[str, ...]  # files in the directory that the manifest does not list

    @property
    def ok(self) -> bool:
        """Whether all functions give right answers."""
        return all(isinstance(verdict.result, Retimed) for verdict in self.functions)

    @property
    def slower_percent(self) -> float:
        """By how many percent the worst function takes longer than its manifest says.

        Only functions tuned for this machine count.
        """
        ratios = (
            verdict.result.ratio
            for verdict in self.functions
            if verdict.same_target and isinstance(verdict.result, Retimed)
        )
        return max((100.0 * (ratio - 1.0) for ratio in ratios if ratio is not None), default=0.0)

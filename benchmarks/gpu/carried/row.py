"""The row of a race: what is known before it, and what it gave."""

from __future__ import annotations

import sys
from typing import Any


def begun(race: dict[str, Any], arch: str, faults: list[str]) -> dict[str, Any]:
    """The row before anything was raced; `faults` are those of wrong candidates, also printed."""
    for fault in faults:
        print(f"  wrong: {fault}", file=sys.stderr)
    return {
        "name": race["name"],
        "spec": race["spec"],
        "candidates": len(race["built"][arch]),
        "wrong": len(faults),
    }


def result(
    race: dict[str, Any], arch: str, kernel_s: float, rivals_s: dict[str, float], error: float
) -> dict[str, Any]:
    """What a race of the kernel with these rivals adds to the row."""
    ratio, bar = min(rivals_s.values()) / kernel_s, race["bars"].get(arch)
    return {
        "kernel_s": kernel_s, "rivals_s": rivals_s, "ratio": ratio, "bar": bar, "error": error,
        "tflops": race["flops"] / kernel_s / 1e12,
        "verdict": "met" if bar is None or ratio >= bar else "missed",
    }  # fmt: skip

"""Writes docs/reference/onnx.md: what becomes of ONNX's own test cases.

Run as `python -m docs.generators.onnx_cases > docs/reference/onnx.md`. The verdicts are
those of `tests/tables/onnx_cases.json`, which `python -m benchmarks.models.onnx_cases
--write tests/tables/onnx_cases.json` makes. A test holds the page to the table, and a slow
one the table to the code.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill

from benchmarks.models.onnx_cases import FIXED, FOLDED, RIGHT, kinds
from tuner.models.from_onnx.reader import TABLES

TABLE = Path(__file__).resolve().parents[2] / "tests/tables/onnx_cases.json"
_MEANINGS = {
    RIGHT: "Right",
    FIXED: "Right, with an input that decides a shape fixed at its value (`--inputs`)",
    FOLDED: "The same of all inputs: ONNX's evaluator computes the result at import",
    "refused": "Refused, for a reason below",
    "wrong": "Wrong",
}


def verdicts() -> dict[str, str]:
    """The recorded verdict of each case by its name."""
    content: dict[str, str] = json.loads(TABLE.read_text())
    return content


def page(table: Mapping[str, str]) -> str:
    """The page's Markdown for verdicts by name."""
    counts, total = kinds(table), len(table)
    lines = [
        "# ONNX operators and test cases",
        "",
        "<!-- Written by `python -m docs.generators.onnx_cases`. -->",
        "",
        *_paragraph(
            "The `onnx` package has test cases for each operator, stored models of old opsets, "
            "and nine well-known networks. This page says what becomes of each case with "
            "tensors in and out. Cases of training are apart."
        ),
        *_paragraph(
            "Each case is read as a file is, and its graph is evaluated by the float64 reference "
            "that kernels are verified against. *Right* means the shape, the dtype and the values "
            "that the case expects, to 1e-3 of each value (1e-2 for 16-bit floats)."
        ),
        "| Verdict | Cases | Share |",
        "| --- | ---: | ---: |",
        *(
            f"| {_MEANINGS[kind]} | {counts[kind]} | {counts[kind] / total:.1%} |"
            for kind in _MEANINGS
        ),
        "",
        "## What is not right",
        "",
        "| Reason | Cases |",
        "| --- | --- |",
    ]
    reasons: dict[str, list[str]] = {}
    for name, verdict in sorted(table.items()):
        if verdict not in (RIGHT, FIXED, FOLDED):
            reasons.setdefault(_reason(verdict), []).append(f"`{name.removeprefix('test_')}`")
    for reason, names in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        lines.append(f"| {reason} | {len(names)}: {', '.join(names)} |")
    lines += ["", "## Operators", ""]
    lines += _paragraph(
        "Functions of the standard are read by their definition where they are not listed. "
        "`If`, `Loop` and `Scan` are branches and loops of the executor."
    )
    lines += ["| Domain | Operators |", "| --- | --- |"]
    for domain in ("ai.onnx", "ai.onnx.ml", "com.microsoft", "qonnx.custom_op.general"):
        lines.append(
            f"| `{domain}` | {', '.join(f'`{name}`' for name in sorted(TABLES[domain]))} |"
        )
    return "\n".join(lines) + "\n"


def _paragraph(text: str) -> list[str]:
    return [fill(text, 96, break_on_hyphens=False), ""]


def _reason(verdict: str) -> str:
    """A verdict without the names that differ from case to case."""
    text = re.sub(r" \(['\"][^'\"]*['\"]\)", "", verdict.partition(": ")[2])
    text = re.sub(r"^input '[^']*'", "an input", text)
    return text.replace("|", "\\|")[:200]


if __name__ == "__main__":
    sys.stdout.write(page(verdicts()))

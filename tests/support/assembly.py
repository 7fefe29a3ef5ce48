"""Loops of assembly as LLVM prints it for any processor."""

from __future__ import annotations

import re

LABEL = re.compile(r"^(\.LBB\w+):")
# Of WebAssembly, whose loops are marked.
MODULE_LOOP = re.compile(r"^\tloop\b((?:(?!^\tloop\b).)*?)^\tend_loop", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"\s\.?[a-z.]+\s.*?(\.LBB\w+)\s*$")


def innermost_loops(text: str) -> list[list[str]]:
    """The instructions of each loop that has no loop inside: from a label to the last
    branch back to it, or as it is marked."""
    if "\tend_loop" in text:
        return [
            [line.strip() for line in body.splitlines() if line.startswith("\t")]
            for body in MODULE_LOOP.findall(text)
        ]
    lines = text.splitlines()
    labels = {match[1]: number for number, line in enumerate(lines) if (match := LABEL.match(line))}
    ends: dict[int, int] = {}
    for number, line in enumerate(lines):
        branch = TARGET.match(line)
        if branch and labels.get(branch[1], number) < number:
            ends[labels[branch[1]]] = number
    innermost = [
        (first, last)
        for first, last in ends.items()
        if not any(first < other <= last for other in ends)
    ]
    return [
        [line.strip() for line in lines[first : last + 1] if line.startswith("\t")]
        for first, last in innermost
    ]


def most_in_a_loop(text: str, mnemonic: str) -> int:
    """How often an instruction stands in the innermost loop that has most of it."""
    return max(
        (sum(line.split()[0] == mnemonic for line in loop) for loop in innermost_loops(text)),
        default=0,
    )

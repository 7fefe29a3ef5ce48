"""Specs with a range on the command line: refused before anything is measured or
written where one function cannot serve them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import Tuner


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("matmul:M=8,N=1..16,K=16", "N cannot be a range"),
        ("matmul:M=1..8,N=1..16,K=16", "a portfolio has one"),
        ("matmul:M=1..8,N=10,K=16", "multiples of 64 bytes"),
        ("matmul:M=8..1,N=16,K=16", "is empty"),
        ("elementwise:M=1..99999,N=16,act=relu", "too long a range"),
    ],
)
def test_ranges_that_cannot_be_are_refused(tuner: Tuner, home: Path, spec: str, text: str) -> None:
    called = tuner("tune", spec)
    assert called.code == 2 and text in called.err and called.err.count("\n") == 1
    assert not (home / "data").exists()


def test_a_family_without_kernels_is_not_exported(tuner: Tuner, home: Path) -> None:
    called = tuner("export", "matmul:M=1..8,N=16,K=16", "-o", str(home / "kit"))
    assert called.code == 2 and "tuner tune makes some" in called.err
    assert not (home / "kit").exists()


@pytest.mark.parametrize(
    ("lines", "specs", "text"),
    [
        ("4 0.5\n9 1\n", ["matmul:M=1..8,N=16,K=16"], "M=9, which is outside 1..8"),
        ("4 much\n", ["matmul:M=1..8,N=16,K=16"], "line 1: '4 much'"),
        ("4 -1\n", ["matmul:M=1..8,N=16,K=16"], "a weight above 0"),
        ("# nobody calls\n", ["matmul:M=1..8,N=16,K=16"], "names no number of rows"),
        ("4\n", ["matmul:M=8,N=16,K=16"], "one SPEC with a range, and 0 were given"),
    ],
)
def test_traffic_that_cannot_be_is_refused(
    tuner: Tuner, home: Path, lines: str, specs: list[str], text: str
) -> None:
    file = home / "traffic.txt"
    file.write_text(lines)
    called = tuner("tune", *specs, "--traffic", str(file))
    assert called.code == 2 and text in called.err and called.err.count("\n") == 1
    assert not (home / "data").exists()

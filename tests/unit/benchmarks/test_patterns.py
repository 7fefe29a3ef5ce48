"""The command that writes a suite of published patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kernels.patterns import finite_elements, main
from benchmarks.kernels.suite import read_suite
from tuner.errors import UsageError

MATRIX = """%%MatrixMarket matrix coordinate real general
%
4 6 3
1 1 1.0
3 2 -2.0
4 6 0.5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(5):
        (tmp_path / "p3" / f"m{number}").mkdir(parents=True)
        (tmp_path / "p3" / f"m{number}" / "sp.mtx").write_text(MATRIX)
    return tmp_path


def test_drawn_files_are_a_suite(folder: Path) -> None:
    path = folder / "patterns.json"
    main(["-o", str(path), "--mtx", str(folder), "--draw", "3", "--seed", "1"])
    cases = [case for case in read_suite(path) if case.name.startswith("p3_")]
    assert len(cases) == 3
    shapes = cases[0].workload.expression.shapes
    assert (shapes["P"], shapes["J"], shapes["X"]) == ((5,), (3,), (6, 2048))


def test_a_seed_draws_the_same_files(folder: Path) -> None:
    drawn = [finite_elements(folder, 2, seed) for seed in (0, 0, 1, 2, 3)]
    assert drawn[0] == drawn[1]
    assert len({str(cases) for cases in drawn}) > 1


def test_more_than_there_are_cannot_be_drawn(folder: Path) -> None:
    with pytest.raises(UsageError, match="has 5 patterns, fewer than --draw 6"):
        finite_elements(folder, 6, 0)


def test_an_operator_without_places_is_left_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = MATRIX.replace("4 6 3", "4 6 0").splitlines()[:3]
    (folder / "none.mtx").write_text("\n".join(empty) + "\n")
    assert len(finite_elements(folder, 5, 0)) == 5
    with pytest.raises(UsageError, match="has 5 patterns"):
        finite_elements(folder, 6, 0)
    assert "none is left out: the pattern has no places" in capsys.readouterr().out

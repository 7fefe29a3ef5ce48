"""Pages that are written by programs are what the programs write."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from benchmarks.measurement import read_all
from docs.generators import benchmarks, knobs, matmul, onnx_cases
from tuner.spaces.core.roles import KnobRole

DOCS = Path(__file__).resolve().parents[2] / "docs"
MEASUREMENTS = read_all(benchmarks.FOLDER)


def test_the_followed_product_is_what_the_code_does() -> None:
    kept, current = (DOCS / "explanation/matmul.md").read_text(), matmul.page()
    if platform.machine() != "x86_64":
        kept, current = (text.partition(matmul.MACHINE_PARTS)[0] for text in (kept, current))
    assert kept == current, "run: python -m docs.generators.matmul > docs/explanation/matmul.md"


def test_the_innermost_loop_has_the_multiply_adds() -> None:
    text = (DOCS / "explanation/matmul.md").read_text().partition(matmul.MACHINE_PARTS)[2]
    assert text.count("vfmadd231ps") == 24 and "24 of them fused multiply-adds" in text


def test_the_knobs_page_is_what_spaces_declare() -> None:
    assert (DOCS / "reference/knobs.md").read_text() == knobs.page(), (
        "run: python -m docs.generators.knobs > docs/reference/knobs.md"
    )


def test_the_page_of_onnx_is_what_the_table_says() -> None:
    assert (DOCS / "reference/onnx.md").read_text() == onnx_cases.page(onnx_cases.verdicts()), (
        "run: python -m docs.generators.onnx_cases > docs/reference/onnx.md"
    )


@pytest.mark.parametrize("role", KnobRole)
def test_every_role_of_a_knob_is_described(role: KnobRole) -> None:
    assert role.value in {"", *knobs.COMMON, *knobs.CPU, *knobs.GPU}


def test_the_pages_of_figures_are_what_the_files_say() -> None:
    again = "run: python -m docs.generators.benchmarks"
    root = DOCS.parent
    assert (root / benchmarks.PAGE).read_text() == benchmarks.page(MEASUREMENTS), again
    assert (root / benchmarks.HISTORY).read_text() == benchmarks.history(MEASUREMENTS), again
    readme = (root / "README.md").read_text()
    assert readme == benchmarks.with_results(readme, MEASUREMENTS), again


def test_every_measurement_is_on_one_page() -> None:
    pages = [(DOCS.parent / page).read_text() for page in (benchmarks.PAGE, benchmarks.HISTORY)]
    for name in MEASUREMENTS:
        assert sum(f"(../measurements/{name})" in page for page in pages) == 1, name

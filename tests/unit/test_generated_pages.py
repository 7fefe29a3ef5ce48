"""Pages that are written by programs are what the programs write."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from docs.generators import knobs, matmul
from tuner.spaces.core.roles import KnobRole

DOCS = Path(__file__).resolve().parents[2] / "docs"


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


@pytest.mark.parametrize("role", KnobRole)
def test_every_role_of_a_knob_is_described(role: KnobRole) -> None:
    assert role.value in {"", *knobs.COMMON, *knobs.CPU, *knobs.GPU}

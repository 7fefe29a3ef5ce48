"""The pages about notation and operators say what is so: examples are read, refusals
refused, the table is the catalogue."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

import tuner
from tuner.errors import WorkloadError
from tuner.workload.budgets import BUDGETS
from tuner.workload.dtypes import DTYPE_NAMES
from tuner.workload.grammar import MAX_DEPTH, MAX_TERMS, MAX_TEXT_BYTES, MAX_TOKENS
from tuner.workload.handbook import page
from tuner.workload.notation import parse
from tuner.workload.right_hand_sides import FUNCTIONS

DOCS = Path(tuner.__file__).parent.parent / "docs/reference"
NOTATION = (DOCS / "notation.md").read_text()
BLOCKS = re.findall(
    r'^```(kernel|refused) title="(.*?)"\n(.*?)^```', NOTATION, re.MULTILINE | re.DOTALL
)


@pytest.mark.parametrize(("kind", "info", "text"), BLOCKS)
def test_examples(kind: str, info: str, text: str) -> None:
    if kind == "kernel":
        parse(
            text,
            {
                name: int(extent)
                for name, extent in (part.split("=") for part in info.strip().split(","))
            },
        )
    else:
        with pytest.raises(WorkloadError, match=re.escape(info.strip())) as caught:
            parse(text, {})
        assert caught.value.line and caught.value.column


DERIVATIVES = (DOCS.parent / "how-to/derivatives.md").read_text()
SHOWN = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", DERIVATIVES, re.M | re.S)


def test_derivatives_are_printed_as_the_page_says() -> None:
    names: dict[str, object] = {}
    for code, printed in SHOWN:
        with redirect_stdout(StringIO()) as output:
            exec(code, names)
        assert output.getvalue().strip() == printed.strip()
    assert len(SHOWN) >= 2


def test_there_are_examples_of_both() -> None:
    assert len([kind for kind, _, _ in BLOCKS if kind == "kernel"]) >= 5 <= len(BLOCKS)


def test_functions_and_limits_are_named() -> None:
    assert [
        name
        for name in (*FUNCTIONS, *DTYPE_NAMES)
        if not re.search(rf"\b{name}\b", NOTATION) and len(name) <= 6
    ] == []
    for number in (
        MAX_TEXT_BYTES // 1024,
        f"{MAX_TOKENS:,}",
        MAX_DEPTH,
        MAX_TERMS,
        BUDGETS.tensors,
        BUDGETS.nbytes >> 30,
        BUDGETS.dimensions,
    ):
        assert str(number) in NOTATION


def test_operators_page_is_the_catalogue() -> None:
    assert (DOCS / "operators.md").read_text() == page(), (
        "run: python -m tuner.workload.handbook > docs/reference/operators.md"
    )

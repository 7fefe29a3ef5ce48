"""The glossary: entries in alphabetical order, each with what the field calls it and a
path that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/glossary.md").read_text()


def entries() -> dict[str, str]:
    """The text of each entry by its term, in the order of the page."""
    parts = re.split(r"^## (.+)$", TEXT, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_terms_are_unique_and_in_alphabetical_order() -> None:
    terms = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    assert len(terms) > 50
    assert terms == sorted(set(terms), key=str.lower)


@pytest.mark.parametrize("term", entries())
def test_each_term_is_defined_and_lives_somewhere(term: str) -> None:
    definition, _, facts = entries()[term].partition("- Elsewhere: ")
    assert definition.strip()
    elsewhere, _, places = facts.partition("- Lives in: ")
    assert elsewhere.strip()
    paths = re.findall(r"`([^`]+)`", places)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []

"""Every page of Markdown reads well in an editor and leads somewhere: line lengths,
paragraphs, links and their anchors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import PAGES, ROOT

COLUMNS = 100
PARAGRAPH_LINES = 6
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]


def prose(page: str) -> Iterator[tuple[int, str]]:
    """The lines of a page outside code, with their numbers."""
    fence = ""
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip() == fence:
            fence = ""
        elif not fence:
            yield number, line


def structural(line: str) -> bool:
    """Whether a line is a heading, a row of a table, HTML or an image, which cannot be
    wrapped."""
    return line.lstrip().startswith(("#", "|", "<", "!["))


@pytest.mark.parametrize("page", NAMES)
def test_lines_of_prose_fit_an_editor(page: str) -> None:
    assert [
        f"{page}:{number}"
        for number, line in prose(page)
        if len(line) > COLUMNS and not structural(line) and len(line.split()) > 1
    ] == []


@pytest.mark.parametrize("page", NAMES)
def test_paragraphs_are_short(page: str) -> None:
    long = []
    length = 0
    for number, line in prose(page):
        begins = not line.strip() or structural(line) or re.match(r"\s*([-*+]|\d+[.)])\s", line)
        length = (0 if not line.strip() or structural(line) else 1) if begins else length + 1
        if length == PARAGRAPH_LINES + 1:
            long.append(f"{page}:{number}")
    assert long == []


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    made: dict[str, int] = {}
    result = set()
    for _, line in prose(path.relative_to(ROOT).as_posix()):
        if heading := re.match(r"#+ (.+)", line):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
            slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            count = made.get(slug, 0)
            made[slug] = count + 1
            result.add(f"{slug}-{count}" if count else slug)
    return result


@pytest.mark.parametrize("page", NAMES)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    dead = []
    text = "\n".join(re.sub(r"`[^`]*`", "", line) for _, line in prose(page))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target)
        ):
            dead.append(link)
    assert dead == []

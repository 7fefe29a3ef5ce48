"""Plugin: texts compared with kept files; `--update-golden` writes them anew, so that a
change shows in review."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files anew instead of comparing with them",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Called with a file's name and the text it should hold."""

    def compare(name: str, text: str) -> None:
        path = FOLDER / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path.name} is missing; pytest --update-golden writes it"
        kept = path.read_text(encoding="utf-8")
        assert text == kept, (
            f"{path.name} changed; look at the difference, then pytest --update-golden"
        )

    return compare

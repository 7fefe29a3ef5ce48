"""docs/how-to/add-a-route.md, carried out on a copy of the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import how_to

pytestmark = pytest.mark.slow

SUITE = ("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider")
SCHEMA = "tests/integration/test_api_schema.py"
REFERENCE = "docs/reference/rest.md"
SERVED = """
import sys
from pathlib import Path

from tests.support.live_service import options_for, serving

folder = Path(sys.argv[1])
with serving(options_for(f"sqlite:///{folder}/tuner.sqlite", folder)) as service:
    service.queue()
    totals = service.client(service.key("read")).totals()
    refused = service.http(service.key("worker")).get("/totals").status_code
    unknown = service.http().get("/totals").status_code
assert totals.jobs["queued"] == 1 and totals.kernels == 0, totals
assert (refused, unknown) == (403, 401)
print("served")
"""


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source after the edits, before the document is regenerated."""
    root, paths = how_to.carry_out("add-a-route.md", tmp_path_factory.mktemp("page"))
    assert list(dict.fromkeys(paths)) == [
        "api/schemas.py",
        "api/answers.py",
        "api/routes/health.py",
        "api/examples.py",
        "tuner/client.py",
        REFERENCE,
    ]
    return root


@pytest.fixture(scope="module")
def source(edited: Path) -> Path:
    """The source after the document was found old and regenerated."""
    with pytest.raises(AssertionError, match=r"openapi.json is out of date"):
        how_to.run(edited, *SUITE, "-k", "committed", SCHEMA)
    how_to.run(edited, *SUITE, "-k", "committed", SCHEMA, UPDATE_OPENAPI="1")
    return edited


def test_the_document_is_regenerated_and_complete(source: Path) -> None:
    assert "2 passed" in how_to.run(source, *SUITE, "-k", "committed or documented", SCHEMA)
    assert "/v1/totals" in (source / "docs/reference/openapi.json").read_text()


def test_the_reference_and_the_examples_keep_their_promises(source: Path) -> None:
    suites = ("tests/unit/api/test_documentation.py", "tests/unit/api/test_examples.py")
    assert " passed" in how_to.run(source, *SUITE, *suites)


def test_a_forgotten_heading_is_noticed(source: Path) -> None:
    page = source / REFERENCE
    written = page.read_text()
    try:
        page.write_text(written.replace("### GET /v1/totals\n", ""))
        with pytest.raises(AssertionError, match=r"GET /v1/totals"):
            how_to.run(source, *SUITE, "tests/unit/api/test_documentation.py")
    finally:
        page.write_text(written)


def test_the_service_answers_and_the_client_reads(source: Path, tmp_path: Path) -> None:
    assert "served" in how_to.run(source, "-c", SERVED, str(tmp_path))

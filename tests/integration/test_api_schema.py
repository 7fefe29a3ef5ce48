"""The whole API against its own OpenAPI document: the committed one is current, and no
generated request breaks its promises."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import checks
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

from tests.support.live_service import MATMUL, LiveService, options_for, serving
from tests.support.promotions import promote
from tuner.api.app import create_app

COMMITTED = Path(__file__).resolve().parents[2] / "docs/reference/openapi.json"
# What a key may do is the auth matrix of test_api.py; here every request carries an
# administrator's key.
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    folder = tmp_path_factory.mktemp("service")
    options = options_for(
        f"sqlite:///{folder}/tuner.sqlite",
        folder,
        event_stream_s=0.1,
        run_wait_s=0.1,
        request_burst=10**6,
    )
    with serving(options) as live:
        live.client(live.key("admin")).submit(MATMUL)
        yield live


def test_the_committed_document_is_the_services(tmp_path: Path) -> None:
    app = create_app(options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path))
    app.state.service.database.close()
    current = json.dumps(app.openapi(), indent=1, sort_keys=True) + "\n"
    if os.environ.get("UPDATE_OPENAPI") == "1":
        COMMITTED.write_text(current)
    if COMMITTED.read_text() != current:
        before = COMMITTED.read_text().splitlines()
        changed = difflib.unified_diff(
            before, current.splitlines(), "committed", "current", lineterm=""
        )
        pytest.fail(
            "docs/reference/openapi.json is out of date; run this test with UPDATE_OPENAPI=1:\n"
            + "\n".join(list(changed)[:80])
        )


def test_every_operation_is_documented(tmp_path: Path) -> None:
    document = json.loads(COMMITTED.read_text())
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert operation.get("summary") and operation.get("description"), f"{method} {path}"
            if path.startswith("/v1/health/"):
                assert operation["security"] == []
            else:
                assert operation["security"] == [{"key": []}] and "401" in operation["responses"], (
                    f"{method} {path}"
                )
            for status, answer in operation["responses"].items():
                if status >= "400":
                    assert list(answer["content"]) == ["application/problem+json"], (
                        f"{method} {path} {status}"
                    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "invalid"]
)
@pytest.mark.parametrize("ids_exist", [True, False], ids=["known ids", "any ids"])
def test_no_request_breaks_the_service(
    service: LiveService, mode: GenerationMode, ids_exist: bool
) -> None:
    schemathesis.serializer.alias("application/x-npz", "application/octet-stream")
    schema = schemathesis.openapi.from_url(service.url + "/openapi.json")
    headers = {"Authorization": f"Bearer {service.key('admin')}"}
    ids = {"job_id": service.queue(), "kernel_id": promote(service)}
    tried = 0
    for parsed in schema.get_all_operations():
        assert isinstance(parsed, Ok)
        operation = parsed.ok()

        @settings(
            max_examples=8,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def probe(case: schemathesis.Case[Any]) -> None:
            if ids_exist and case.path_parameters:
                case.path_parameters.update(
                    {name: value for name, value in ids.items() if name in case.path_parameters}
                )
            case.call_and_validate(headers=headers, checks=CHECKS, timeout=20)

        try:
            probe()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE, (
                operation.label
            )  # it takes nothing, so nothing can be wrong
            continue
        tried += 1
    assert tried >= (20 if mode is GenerationMode.POSITIVE else 12)

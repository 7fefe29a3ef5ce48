"""Texts made to break a database or a parser, through every door they could come in by:
refused or not found, never a fault."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.live_service import MATMUL, LiveService, options_for, serving

NASTY = ["\x00", "a\x00b", "\ud800", "%", "' OR 1=1 --", "../../etc/passwd", "𝔸" * 16, "\u202e"]


@pytest.fixture(scope="module")
def service(service_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    with serving(options_for(service_url, tmp_path_factory.mktemp("service"))) as live:
        yield live


def quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def cursor(*parts: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


@pytest.mark.parametrize("text", NASTY)
def test_in_paths_and_queries(service: LiveService, text: str) -> None:
    token = service.key("admin")
    job = service.client(token).submit(MATMUL).id
    with service.http(token) as http:
        for path in (
            "/jobs/{}",
            "/jobs/{}/trials",
            "/jobs/{}/events",
            "/kernels/{}/artifact",
            "/kernels/k/runs/{}",
        ):
            assert http.get(path.format(quoted(text))).status_code in (404, 422), path
        for path in (
            "/jobs?workload={}",
            "/kernels?op={}",
            "/jobs?cursor={}",
            f"/jobs/{job}/trials?knob={{}}",
        ):
            assert http.get(path.format(quoted(text))).status_code in (200, 400, 422), path
            assert http.get(path.format("x=" + quoted(text))).status_code in (200, 400, 422), path


def test_nested_deeper_than_a_parser_goes(service: LiveService) -> None:
    token, deep = service.key("submit"), "[" * 20_000
    job = service.client(token).submit(MATMUL).id
    bodies = (
        deep,
        '{"workload":' + deep,
        '{"op":' * 20_000,
        '{"workload":{"notation":"' + "(" * 20_000 + '"}}',
    )
    with service.http(token) as http:
        for knob in (deep, deep[:400]):
            assert http.get(f"/jobs/{job}/trials?knob=tile={knob}").status_code in (200, 422)
        for body in bodies:
            answer = http.post("/jobs", content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code in (400, 422), body[:40]


@pytest.mark.parametrize("text", NASTY)
def test_in_bodies_and_headers(service: LiveService, text: str) -> None:
    with service.http(service.key("submit")) as http:
        for body in (
            {"workload": {"op": text, "params": {}}},
            {"workload": {"op": "matmul", "params": {text: 1}}},
            {"workload": {"op": "matmul", "params": {"M": text, "N": 1, "K": 1}}},
            {"workload": {"notation": text}},
            {"workload": MATMUL, "target": text},
        ):
            response = http.post(
                "/jobs", content=json.dumps(body), headers={"Content-Type": "application/json"}
            )
            assert response.status_code == 422, (body, response.text)
        key = text.encode("utf-8", "surrogatepass")
        if not any(byte < 32 for byte in key):
            response = http.post(
                "/jobs", json={"workload": MATMUL}, headers=[(b"Idempotency-Key", key)]
            )
            assert response.status_code in (202, 422)
            assert (
                http.get(
                    "/jobs", headers=[(b"Authorization", b"Bearer tk_" + key + b"_x")]
                ).status_code
                == 401
            )


@pytest.mark.parametrize(
    "position",
    [
        ("jobs", "\x00"),
        ("jobs", 10**30),
        ("jobs", None),
        ("jobs",),
        ("trials by number", None, 10**30, 0),
        ("trials by number", None, -1, True),
        ("trials by median_s", 1e308, 10**40, 10**40),
        ("kernels", "\ud800"),
        {},
        "jobs",
    ],
)
def test_in_forged_cursors(service: LiveService, position: object) -> None:
    token = service.key("admin")
    job = service.client(token).submit(MATMUL).id
    parts = position if isinstance(position, tuple) else (position,)
    with service.http(token) as http:
        for path in (
            "/jobs",
            "/kernels",
            f"/jobs/{job}/trials",
            f"/jobs/{job}/trials?sort=median_s",
        ):
            response = http.get(
                path,
                params={
                    "cursor": cursor(*parts),
                    **({"sort": "median_s"} if "sort" in path else {}),
                },
            )
            assert response.status_code in (200, 400, 422), (path, response.text)


def test_in_wrong_json(service: LiveService) -> None:
    with service.http(service.key("submit")) as http:
        for content in (
            b"",
            b"null",
            b"[]",
            b'"x"',
            b"{",
            b"\xff\xfe",
            b'{"workload": NaN}',
            b"[" * 100_000,
        ):
            for kind in ("application/json", "text/plain", ""):
                status = http.post(
                    "/jobs", content=content, headers={"Content-Type": kind}
                ).status_code
                assert status in (400, 415, 422), (content[:20], kind, status)


PIECES = [
    *(
        "kernel f(A: f32[N]) -> (B: f32[N]) {",
        "B[i] = A[i]",
        "+=",
        "max=",
        "A[",
        "(" * 40,
        "]" * 9,
        "i // 3",
        "%",
        "where",
    ),
    *(
        "0.5",
        "1e999",
        "\n",
        "}",
        "exp(",
        "f99",
        "9" * 30,
        "\u00e9",
        "->",
        "in 0:4",
        "#",
        "\t",
        "A[i + 99999999999]",
        "-inf",
    ),
]
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join), st.text(max_size=200)
)


@settings(
    max_examples=120,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(text=TEXTS, size=st.integers(-1, 10**12))
def test_no_notation_breaks_or_delays_the_service(
    quiet_service: httpx.Client, text: str, size: int
) -> None:
    started = time.monotonic()
    body = json.dumps({"workload": {"notation": text, "shapes": {"N": size}}, "prepare": False})
    response = quiet_service.post(
        "/lookup", content=body, headers={"Content-Type": "application/json"}
    )
    assert response.status_code in (200, 422), response.text
    if response.json().get("code") == "invalid_workload" and "line" in response.json():
        assert response.json()["line"] >= 1 and response.json()["column"] >= 1
    # The promise is 100 ms for a refusal on a machine of one's own; here it only must not hang.
    assert time.monotonic() - started < 5.0


@pytest.fixture(scope="module")
def quiet_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("notation")
    with (
        serving(options_for(f"sqlite:///{folder}/tuner.sqlite", folder)) as live,
        live.http(live.key("read")) as http,
    ):
        yield http

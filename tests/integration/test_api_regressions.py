"""What kernels lost, over REST, on the pages, as a metric and at a webhook."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from tests.support.live_service import LiveService, options_for, serving
from tests.support.overtaken import overtaken
from tuner.app.service.reraces import announce
from tuner.client import ServiceError


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LiveService]:
    with serving(options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path)) as live:
        yield live


def test_a_loss_is_in_the_answers_on_the_pages_and_a_metric(service: LiveService) -> None:
    kernel = overtaken(service.database)
    client = service.client(service.key("read"))
    series = client.races(kernel)
    assert [race.contests[0].ratio for race in series.items] == [1.5] * 3 + [0.8] * 4
    assert series.items[-1].libraries == {"torch": "2<b>"} and not series.items[-1].disturbed
    (lost,) = client.regressions()
    assert (lost.kernel, lost.kind, lost.contender, lost.version) == (
        kernel,
        "overtaken",
        "torch",
        "2<b>",
    )
    assert lost.factor == pytest.approx(1.25) and lost.raised_at is not None
    assert list(client.regressions(state=["resolved"])) == []
    with pytest.raises(ServiceError, match="no kernel"):
        client.races("k_none")
    with service.http(service.key("read")) as http:
        metrics = http.get("/metrics").text
    assert 'tuner_regressions{kind="overtaken"} 1.0' in metrics
    assert 'tuner_regressions{kind="slower"} 0.0' in metrics
    cookies = {"tuner_session": service.key("read")}
    with httpx.Client(base_url=service.url, cookies=cookies, timeout=30, verify=False) as pages:
        page = pages.get(f"/kernels/{kernel}").text
        assert "overtaken, raised" in page and "2&lt;b&gt;" in page and "2<b>" not in page
        assert "7 races; in the last one torch" in page
        image = pages.get(f"/kernels/{kernel}/charts/races.svg")
        assert image.headers["content-type"].startswith("image/svg") and "whisker" in image.text
        assert 'href="/kernels/' + kernel + '#races">lost</a>' in pages.get("/kernels").text
        assert "raced again and confirmed" in pages.get("/").text


def test_a_webhook_gets_each_alarm_once(service: LiveService) -> None:
    kernel = overtaken(service.database)
    taken: list[dict[str, object]] = []
    statuses = [503, 200, 200]

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(statuses.pop(0))
            self.end_headers()
            taken.append(json.loads(body))

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/hook"
        with pytest.raises(OSError, match="did not take an alarm"):
            announce(service.database, url)
        assert announce(service.database, url) == 1
        assert announce(service.database, url) == 0
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert len(taken) == 2 and taken[0] == taken[1]
    assert taken[0]["event"] == "regression.raised" and taken[0]["kernel"] == kernel
    assert (taken[0]["contender"], taken[0]["path"]) == ("torch", f"/kernels/{kernel}")

"""The reference page shows the whole document and executes none of it."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from tuner.api.reference_page import render

HOSTILE = "</pre><script>alert(1)</script>"
DOCUMENT: dict[str, Any] = {
    "info": {"title": "tuner", "version": "0.1.0", "description": HOSTILE},
    "paths": {
        "/v1/jobs": {
            "post": {
                "operationId": "submit_job",
                "summary": "Submit",
                "parameters": [{"name": "Idempotency-Key", "in": "header", "description": HOSTILE}],
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {"$ref": "#/components/schemas/JobRequest"},
                            "examples": {"one": {"value": {"text": HOSTILE}}},
                        }
                    }
                },
                "responses": {"202": {"description": HOSTILE}},
            }
        }
    },
    "components": {"schemas": {"JobRequest": {"title": HOSTILE}}},
}


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        self.links += [values[name] or "" for name in ("href", "src") if name in values]
        self.ids += [values["id"] or ""] if "id" in values else []


def page() -> Tags:
    parser = Tags()
    parser.feed(render(DOCUMENT))
    return parser


def test_texts_are_shown_and_never_become_elements() -> None:
    assert "script" not in page().tags
    assert render(DOCUMENT).count("&lt;script&gt;") >= 5


def test_links_stay_on_this_host_and_lead_somewhere() -> None:
    parsed = page()
    assert all(link.startswith(("/", "#")) for link in parsed.links)
    assert {link[1:] for link in parsed.links if link.startswith("#")} <= set(parsed.ids)

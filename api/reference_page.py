"""The API reference as a page of plain HTML, made from the OpenAPI document.

It has no script and loads nothing from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

POLICY = (
    "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)
METHODS = ("get", "post", "put", "patch", "delete")

STYLE = """\
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 0 auto; padding: 1rem; }
pre { overflow-x: auto; padding: .75rem; border: 1px solid; border-radius: .25rem; }
code, pre { font: .9em ui-monospace, monospace; }
section { border-top: 1px solid; padding-top: .5rem; margin-top: 1.5rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .2rem .6rem .2rem 0; }
"""


def render(document: Mapping[str, Any]) -> str:
    """The whole page; every text of the document is escaped."""
    info = document["info"]
    body = "".join(operations(document))
    schemas = "".join(
        schema(name, item)
        for name, item in sorted(document.get("components", {}).get("schemas", {}).items())
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width">'
        f'<title>{escape(info["title"])}</title><link rel="stylesheet" '
        f'href="/docs/style.css"></head><body><main>'
        f"<h1>{escape(info['title'])} "
        f"{escape(info['version'])}</h1><p>{escape(info.get('description', ''))}</p>"
        f"<p>For programs: <a "
        f'href="/openapi.json">openapi.json</a>.</p><nav><ul>{contents(document)}</ul></nav>'
        f"{body}<h2>Schemas</h2>{schemas}</main></body></html>"
    )


def each(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def contents(document: Mapping[str, Any]) -> str:
    return "".join(
        f'<li><a href="#{escape(operation["operationId"])}"><code>{method.upper()} '
        f"{escape(path)}</code></a> "
        f"{escape(operation.get('summary', ''))}</li>"
        for path, method, operation in each(document)
    )


def operations(document: Mapping[str, Any]) -> Iterator[str]:
    for path, method, operation in each(document):
        yield (
            f'<section id="{escape(operation["operationId"])}"><h2><code>{method.upper()} '
            f"{escape(path)}</code></h2>"
            f"<p>{escape(operation.get('description', operation.get('summary', '')))}</p>"
            f"{parameters(operation)}{request_body(operation)}{responses(operation)}</section>"
        )


def parameters(operation: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(item['name'])}</code></td>"
        f"<td>{escape(item['in'])}{', required' if item.get('required') else ''}</td>"
        f"<td>{escape(item.get('description', ''))}</td></tr>"
        for item in operation.get("parameters", [])
    )
    return (
        f"<table><tr><th>parameter</th><th>where</th><th>meaning</th></tr>{rows}</table>"
        if rows
        else ""
    )


def request_body(operation: Mapping[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    return "".join(
        f"<h3>Body: {escape(kind)} {reference(item)}</h3>{examples(item)}"
        for kind, item in content.items()
    )


def responses(operation: Mapping[str, Any]) -> str:
    rows = []
    for status, item in operation.get("responses", {}).items():
        shapes = ", ".join(
            f"{escape(kind)} {reference(shape)}" for kind, shape in item.get("content", {}).items()
        )
        rows.append(
            f"<tr><td>{escape(str(status))}</td><td>{escape(item.get('description', ''))}</td><td>{shapes}</td></tr>"  # noqa: E501
        )
    return f"<table><tr><th>status</th><th>meaning</th><th>body</th></tr>{''.join(rows)}</table>"


def reference(item: Mapping[str, Any]) -> str:
    name = str(item.get("schema", {}).get("$ref", "")).rpartition("/")[2]
    return f'<a href="#schema-{escape(name)}">{escape(name)}</a>' if name else ""


def examples(item: Mapping[str, Any]) -> str:
    values = [value["value"] for value in item.get("examples", {}).values()]
    return "".join(f"<pre>{escape(json.dumps(value, indent=2))}</pre>" for value in values)


def schema(name: str, item: Mapping[str, Any]) -> str:
    text = escape(json.dumps(item, indent=2))
    return (
        f"<details "
        f'id="schema-{escape(name)}"><summary><code>{escape(name)}</code></summary><pre>{text}</pre></details>'
    )

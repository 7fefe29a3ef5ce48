"""Texts of an export that differ between libraries in names only; `@key@` is replaced."""

from __future__ import annotations

from importlib.resources import files


def fill(template: str, **values: str) -> str:
    """A template of templates/ with each `@key@` replaced."""
    text = (files("tuner.export") / "templates" / template).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text

"""Templates of an export's texts, in which `@key@` is replaced."""

from __future__ import annotations

from importlib.resources import files


def fill(template: str, **values: str) -> str:
    """The template of that name in templates/, with each `@key@` replaced by its value."""
    text = (files("tuner.export") / "templates" / template).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text

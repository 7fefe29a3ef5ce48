"""What a caller writes of a model's inputs, in the command and over REST."""

from __future__ import annotations

import json

import pytest

from tuner.errors import UsageError
from tuner.models.files.input_shapes import parse_shapes, shapes_from


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("", {}),
        ("batch=1", {"batch": 1}),
        (" batch = 1 , x=1x3x48x192,", {"batch": 1, "x": (1, 3, 48, 192)}),
        ("input:0=2x3,a=b=4", {"input:0": (2, 3), "a=b": 4}),
    ],
)
def test_extents_and_whole_shapes_are_read(
    text: str, shapes: dict[str, int | tuple[int, ...]]
) -> None:
    assert parse_shapes(text) == shapes
    assert shapes_from(json.loads(json.dumps(shapes))) == shapes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("batch", "'batch'"),
        ("=3", "'=3'"),
        ("batch=", "'batch='"),
        ("batch=-1", "'batch=-1'"),
        ("batch=1..4", "'batch=1..4'"),
        ("x=1x", "'x=1x'"),
        ("x=1×3", "'x=1×3'"),
        ("x=" + "9" * 19, "whole number"),
        ("x=2,x=1x2", "give x twice"),
    ],
)
def test_what_is_no_shape_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_shapes(text)

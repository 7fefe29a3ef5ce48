"""Conditional and partial delivery of immutable bytes (RFC 9110, sections 13 and 14).

Supports strong ETags, `If-None-Match`, `If-Range` and one byte range. A request for
several ranges gets everything, as section 14.2 allows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fastapi import Response

from tuner.api.problems import Problem

RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
TAG = re.compile(r'(?:W/)?"[^"]*"')


def deliver(
    data: bytes,
    *,
    etag: str,
    headers: Mapping[str, str],
    media_type: str,
    range_header: str | None,
    if_none_match: str | None,
    if_range: str | None,
) -> Response:
    """The answer for the whole or a part of `data`; `etag` is the quoted strong tag."""
    common = {"ETag": etag, "Accept-Ranges": "bytes", **headers}
    if if_none_match is not None and matches(if_none_match, etag):
        return Response(status_code=304, headers=common)
    if range_header is None or (if_range is not None and if_range.strip() != etag):
        return Response(data, headers=common, media_type=media_type)
    requested = RANGE.fullmatch(range_header.strip())
    if requested is None or requested.groups() == ("", ""):
        return Response(data, headers=common, media_type=media_type)
    start, stop = bounds(requested.group(1), requested.group(2), len(data))
    if start >= stop:
        raise Problem(
            416,
            "range_not_satisfiable",
            f"the artifact has {len(data)} bytes; {range_header!r} lies outside",
            headers={"Content-Range": f"bytes */{len(data)}"},
        )
    part = {**common, "Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
    return Response(data[start:stop], 206, part, media_type)


def matches(if_none_match: str, etag: str) -> bool:
    """Whether a tag of the header is `etag`, by the weak comparison of RFC 9110, 13.1.2."""
    if if_none_match.strip() == "*":
        return True
    return any(tag.removeprefix("W/") == etag for tag in TAG.findall(if_none_match))


def bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """Start and stop of the range; empty if it cannot be satisfied."""
    if first == "":
        return max(0, size - int(last)), size
    start = int(first)
    stop = size if last == "" else min(size, int(last) + 1)
    return start, (stop if last == "" or int(last) >= start else start)

"""Partial and conditional delivery against the cases of RFC 9110."""

from __future__ import annotations

import pytest

from tuner.api.problems import Problem
from tuner.api.ranges import deliver

DATA = bytes(range(100))
TAG = '"abc"'


def get(
    range_header: str | None = None,
    *,
    if_none_match: str | None = None,
    if_range: str | None = None,
) -> tuple[int, bytes, str | None]:
    response = deliver(
        DATA,
        etag=TAG,
        headers={},
        media_type="application/octet-stream",
        range_header=range_header,
        if_none_match=if_none_match,
        if_range=if_range,
    )
    assert response.headers["etag"] == TAG
    return response.status_code, bytes(response.body), response.headers.get("content-range")


@pytest.mark.parametrize(
    ("header", "start", "stop"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=10-", 10, 100),
        ("bytes=-5", 95, 100),
        ("bytes=90-1000", 90, 100),
        ("bytes=-1000", 0, 100),
        ("bytes=99-99", 99, 100),
    ],
)
def test_one_range(header: str, start: int, stop: int) -> None:
    assert get(header) == (206, DATA[start:stop], f"bytes {start}-{stop - 1}/100")


@pytest.mark.parametrize("header", ["bytes=0-1,5-6", "bytes=-", "lines=1-2", "bytes=a-b", ""])
def test_what_is_not_one_byte_range_gives_the_whole(header: str) -> None:
    assert get(header) == (200, DATA, None)


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=500-600", "bytes=-0", "bytes=9-3"])
def test_unsatisfiable(header: str) -> None:
    with pytest.raises(Problem) as caught:
        get(header)
    assert caught.value.status_code == 416
    assert caught.value.headers == {"Content-Range": "bytes */100"}


@pytest.mark.parametrize(
    ("header", "status"),
    [(TAG, 304), (f'W/{TAG}, "x"', 304), ("*", 304), ('"x"', 200), ("abc", 200)],
)
def test_if_none_match(header: str, status: int) -> None:
    assert get(if_none_match=header)[0] == status


def test_if_range_with_another_tag_gives_the_whole() -> None:
    assert get("bytes=0-9", if_range='"old"')[0] == 200
    assert get("bytes=0-9", if_range=TAG)[0] == 206

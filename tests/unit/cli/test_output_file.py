"""Files that commands write: refused before the work, written whole, nothing left beside them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.cli.exits import Exit
from tuner.cli.output_file import check_output, write_or_keep, write_output
from tuner.errors import UsageError


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / ("a b" * 85)  # as long as names may be
    for content in (b"first", b"second"):
        check_output(path)
        write_output(path, content)
        assert path.read_bytes() == content and list(tmp_path.iterdir()) == [path]


def test_a_link_keeps_naming_its_file(tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(file)
    check_output(link)
    write_output(link, b"content")
    assert link.is_symlink() and file.read_bytes() == b"content"


def test_a_pipe_is_written_in_place(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    check_output(path)
    write_output(path, b"content")
    assert os.read(reader, 9) == b"content" and path.is_fifo()
    os.close(reader)


def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    for path, says in ((tmp_path, "is a folder"), (tmp_path / "no" / "file", "is no folder")):
        with pytest.raises(UsageError, match=says):
            check_output(path)
    long = tmp_path / ("n" * 300)
    for refuses in (check_output, lambda path: write_output(path, b"content")):
        with pytest.raises(UsageError, match="File name too long; name another file"):
            refuses(long)
    assert not list(tmp_path.iterdir())


def test_what_took_long_to_make_is_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with pytest.raises(UsageError, match=r"cannot be written.*until then it is in") as raised:
        write_or_keep(tmp_path / "gone" / "net.onnx", b"content")
    (kept,) = (tmp_path / "temporary").iterdir()
    assert str(raised.value).endswith(str(kept))
    assert kept.suffix == ".onnx" and kept.read_bytes() == b"content"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(UsageError, match=r"name another file$"):
        write_or_keep(tmp_path / "gone" / "net.onnx", b"content")


@pytest.mark.parametrize(
    "arguments",
    [
        ["trace", "-o", "no/file.json", "--", "touch", "begun"],
        ["estimate", "matmul:M=8,N=8,K=8", "-o", "no/file.csv", "--tune", "20"],
        ["replay", "table.npz", "--plot", "no/file.svg"],
    ],
)
def test_commands_refuse_before_they_begin(
    tuner: Callable[..., Any], home: Path, arguments: list[str]
) -> None:
    called = tuner(*arguments)
    assert called.code == Exit.USAGE and "no is no folder" in called.err
    assert not Path("begun").exists()

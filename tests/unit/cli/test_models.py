"""`tuner tune MODEL.onnx`: what is refused, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import onnx_networks as nets
from tuner.cli.exits import Exit
from tuner.cli.models import library_name


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.onnx"], ["missing.onnx", "is no file"]),
        (["a.onnx", "b.onnx"], ["one .onnx file", "no SPEC"]),
        (["a.onnx", "--traffic", "t"], ["one .onnx file", "--traffic"]),
        (["a.onnx", "--trace", "t"], ["one .onnx file", "--trace"]),
        (["net.onnx", "-o", "net.onnx/out"], ["net.onnx is no folder"]),
        (["a.onnx", "matmul:M=8,N=8,K=8"], ["one .onnx file"]),
        (["broken.onnx"], ["broken.onnx", "no ONNX model"]),
        (["broken.onnx", "--name", "3 nets", "-o", "out"], ["library name '3 nets'"]),
        (["net.onnx", "-o", "taken"], ["taken"]),
        (["net.onnx", "--shapes", "batch=2"], ["'batch'"]),
        (["net.onnx", "--shapes", "batch=1..2"], ["'batch'"]),
        (["net.onnx", "--shapes", "batch=1..2,words=1..8"], ["'words=1..8'", "one extent"]),
        (["net.onnx", "--shapes", "batch=4..2"], ["batch=4..2", "within 1..1024"]),
        (["net.onnx", "--shapes", "words=8|16"], ["'words'"]),
        (["net.onnx", "--shapes", "words=16|8"], ["words=16|8", "ascending"]),
        (["net.onnx", "--shapes", "words=8|x"], ["'words=8|x'", "32|64|128"]),
        (["net.onnx", "--shapes", "batch=1..2,words=8|9"], ["'words=8|9'", "one extent"]),
        (["net.onnx", "--trials", "0"], ["trials is 0"]),
        (["matmul:M=8,N=8,K=8", "-o", "out"], ["for models", "tuner export"]),
        (["matmul:M=8,N=8,K=8", "--inputs", "x.npz"], ["--inputs", "for models"]),
        (["net.onnx", "--inputs", "missing.npz"], ["missing.npz", "is no file"]),
        (["net.onnx", "--inputs", "net.onnx"], ["net.onnx is no .npz file"]),
        (["net.onnx", "--inputs", "z.npz"], ["'z'", "no input of the model", "'x'"]),
    ],
)
def test_a_model_is_refused_in_one_line(
    tuner: Callable[..., Any], home: Path, arguments: list[str], says: list[str]
) -> None:
    work = home / "work"
    (work / "broken.onnx").write_bytes(b"\xff no protocol buffer")
    (work / "net.onnx").write_bytes(nets.serialized(nets.perceptron(rows=2, sizes=(4, 3))))
    np.savez(work / "z.npz", z=np.zeros(3, np.float32))
    (work / "taken").mkdir()
    (work / "taken" / "mine.txt").write_text("mine")
    called = tuner("tune", *arguments)
    assert called.code == Exit.USAGE
    assert called.out == ""
    assert [words for words in says if words not in called.err] == []
    assert called.err.startswith("error: ") and called.err.count("\n") == 1
    assert not (home / "data").exists()
    assert sorted(path.name for path in work.iterdir()) == [
        "broken.onnx",
        "net.onnx",
        "taken",
        "z.npz",
    ]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("net.onnx", "net"),
        ("a/b/ResNet-18 v2.onnx", "resnet_18_v2"),
        ("2net.onnx", "model_2net"),
        (".onnx", "model"),
    ],
)
def test_a_library_is_called_after_its_file(path: str, name: str) -> None:
    assert library_name(path) == name

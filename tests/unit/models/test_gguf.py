"""Tensors of GGUF files: their bytes as the format's description has them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.models.gguf import BadGguf, GgufFile, PackedWeights
from tuner.workload.reference import evaluate_with_magnitude
from tuner.workload.spec import parse_spec

RNG = np.random.default_rng(3)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def written(path: Path, tensors: Mapping[str, tuple[int, tuple[int, ...], bytes]]) -> Path:
    """A file with some metadata; of each tensor the type's number, the shape and the bytes."""
    metadata = [
        text("general.name") + struct.pack("<I", 8) + text("a name"),
        text("general.alignment") + struct.pack("<II", 4, 64),
        text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
        text("counts") + struct.pack("<IIQ2i", 9, 5, 2, -1, 7),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata)
    data = b""
    for name, (number, shape, content) in tensors.items():
        data += bytes(-len(data) % 64)
        dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += text(name) + dimensions + struct.pack("<IQ", number, len(data))
        data += content
    path.write_bytes(head + bytes(-len(head) % 64) + data)
    return path


def q4_0(units: int, features: int) -> tuple[bytes, Any]:
    """Blocks and the weights that they hold, one by one."""
    content, weights = b"", np.zeros((units, features))
    for unit in range(units):
        for block in range(features // 32):
            scale = np.float16(RNG.normal())
            numbers = RNG.integers(0, 16, 32)
            weights[unit, 32 * block : 32 * block + 32] = (numbers - 8) * float(scale)
            content += scale.tobytes()
            content += bytes(int(numbers[j] | numbers[j + 16] << 4) for j in range(16))
    return content, weights


def q8_0(units: int, features: int) -> tuple[bytes, Any]:
    content, weights = b"", np.zeros((units, features))
    for unit in range(units):
        for block in range(features // 32):
            scale, numbers = np.float16(RNG.normal()), RNG.integers(-128, 128, 32).astype(np.int8)
            weights[unit, 32 * block : 32 * block + 32] = numbers * float(scale)
            content += scale.tobytes() + numbers.tobytes()
    return content, weights


def q4_k(units: int, features: int) -> tuple[bytes, Any]:
    """One group in four has no scale."""
    content, weights = b"", np.zeros((units, features))
    for unit in range(units):
        for block in range(features // 256):
            d, e = np.abs(RNG.normal(size=2)).astype(np.float16)
            scales, least = RNG.integers(0, 64, (2, 8))
            scales[RNG.integers(0, 8, 2)] = 0
            numbers = RNG.integers(0, 16, (8, 32))
            real = float(d) * scales[:, None] * numbers - float(e) * least[:, None]
            weights[unit, 256 * block : 256 * block + 256] = real.reshape(-1)
            packed = [int(scales[j] | (scales[j + 4] >> 4) << 6) for j in range(4)]
            packed += [int(least[j] | (least[j + 4] >> 4) << 6) for j in range(4)]
            packed += [int(scales[j] & 15 | (least[j] & 15) << 4) for j in range(4, 8)]
            content += d.tobytes() + e.tobytes() + bytes(packed)
            for group in range(0, 8, 2):
                content += bytes(map(int, numbers[group] | numbers[group + 1] << 4))
    return content, weights


@pytest.mark.parametrize(
    ("number", "made", "features"), [(2, q4_0, 96), (8, q8_0, 96), (12, q4_k, 512)]
)
def test_packed_weights_multiply_as_those_of_the_file(
    number: int, made: Any, features: int, tmp_path: Path
) -> None:
    content, weights = made(5, features)
    file = GgufFile(
        written(
            tmp_path / "m.gguf",
            {"first": (0, (3,), bytes(12)), "layer": (number, (5, features), content)},
        )
    )
    layer = file["layer"]
    assert isinstance(layer, PackedWeights)
    workload = parse_spec(layer.spec(rows=2))
    x = RNG.standard_normal((2, features)).astype(np.float32)
    inputs = {"X": x, "W": layer.packed, "S": layer.scales}
    if layer.zeros is not None:
        inputs["Z"] = layer.zeros
    values, magnitudes = evaluate_with_magnitude(workload.expression, inputs)
    # A scale or zero point that is a product or quotient is rounded to float32.
    bound = 1e-12 if layer.zeros is None else 2.0**-22
    error = np.abs(values["Y"] - x.astype(np.float64) @ weights.T)
    assert (error <= bound * magnitudes["Y"]).all()


def test_floats_and_metadata(tmp_path: Path) -> None:
    array = RNG.standard_normal((2, 3)).astype(np.float32)
    half = array.astype(np.float16)
    tensors = {"a": (0, (2, 3), array.tobytes()), "b": (1, (2, 3), half.tobytes())}
    file = GgufFile(written(tmp_path / "m.gguf", tensors))
    assert file.names == ("a", "b")
    np.testing.assert_array_equal(file["a"], array)
    np.testing.assert_array_equal(file["b"], half)
    assert file.metadata["tokens"] == ["a", "b"] and file.metadata["counts"] == [-1, 7]


@pytest.mark.parametrize(
    ("number", "shape", "content", "message"),
    [
        (14, (1, 256), bytes(144), "type 14; F32, F16, Q4_0, Q8_0, Q4_K are read"),
        (2, (1, 48), bytes(27), "no multiple of 32"),
        (2, (4, 32), bytes(18), "cut off"),
        (2, (1, 2, 32), bytes(36), "no matrix"),
    ],
)
def test_a_tensor_that_is_not_read_is_named(
    number: int, shape: tuple[int, ...], content: bytes, message: str, tmp_path: Path
) -> None:
    file = GgufFile(written(tmp_path / "m.gguf", {"layer": (number, shape, content)}))
    with pytest.raises(BadGguf, match=message):
        file["layer"]


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"PK\x03\x04 not this")
    with pytest.raises(BadGguf, match="does not begin with GGUF"):
        GgufFile(tmp_path / "x")


@given(length=st.integers(1, 400))
def test_a_header_that_is_cut_off_is_refused(
    length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    whole = written(folder / "whole", {"layer": (0, (3,), bytes(12))}).read_bytes()
    head = whole.rindex(text("layer")) + len(text("layer")) + 4 + 8 + 12
    (folder / "part").write_bytes(whole[: min(length, head - 1)])
    with pytest.raises(BadGguf, match=r"cut off|does not begin"):
        GgufFile(folder / "part")

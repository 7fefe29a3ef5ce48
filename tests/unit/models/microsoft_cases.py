"""Calls of operators of the domain `com.microsoft` that ONNX Runtime computes on CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

RNG = np.random.default_rng(7)
B, S, H, D = 2, 5, 2, 4  # batch, sequence, heads, width of a head


def real(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> Any:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> Any:
    """Of seven bits: ONNX Runtime sums pairs of products in 16, and loses larger ones."""
    return RNG.integers(-64, 64, shape).astype(np.int8)


def f32(value: float) -> Any:
    return np.float32(value)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Inputs in order, None for one that is left out; those in `constants` are in the file."""

    op: str
    inputs: tuple[Any, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)  # an empty name for one that is left out
    constants: frozenset[int] = frozenset()
    tolerance: float = 1e-5  # of the greatest value, or units of an integer
    label: str = ""
    compared: int = 9  # of the outputs, the first


QKV = (real(B, S, H * D), real(B, S, H * D), real(B, S, H * D))
PROJECTION = (real(B, S, 6), real(6, 3 * H * D), real(3 * H * D))
LENGTHS = np.array([4, 2], np.int32)
COS, SIN = np.cos(real(16, D // 2)), np.sin(real(16, D // 2))
PAST = (real(B, H, 3, D), real(B, H, 3, D))
SCALES = np.linspace(0.005, 0.01, 2 * 4 * 8, dtype=np.float32).reshape(2, -1)

CASES = [
    Case(op="Attention", inputs=PROJECTION, attributes={"num_heads": H}),
    Case(
        op="Attention",
        label="causal",
        inputs=PROJECTION,
        attributes={"num_heads": H, "unidirectional": 1},
    ),
    Case(
        op="Attention",
        label="lengths",
        inputs=(*PROJECTION, LENGTHS),
        attributes={"num_heads": H},
    ),
    Case(
        op="Attention",
        label="ends and begins",
        inputs=(*PROJECTION, np.array([4, 5, 1, 2], np.int32)),
        attributes={"num_heads": H},
    ),
    Case(
        op="Attention",
        label="mask and past",
        inputs=(
            *PROJECTION,
            np.array([[1] * 7 + [0], [1] * 5 + [0] * 3], np.int32),
            np.stack(PAST),
        ),
        attributes={"num_heads": H, "unidirectional": 1},
        outputs=("y", "present"),
    ),
    Case(op="BiasGelu", inputs=(real(2, 3, 8), real(8))),
    Case(
        op="ConvTransposeWithDynamicPads",
        inputs=(real(1, 2, 4, 4), real(2, 3, 3, 3), np.array([1, 0, 1, 0])),
        attributes={"strides": [2, 2]},
        constants=frozenset({2}),
    ),
    Case(op="DynamicQuantizeMatMul", inputs=(real(3, 8), i8(8, 5), f32(0.1), np.int8(3), real(5)),
         constants=frozenset({1, 2, 3, 4})),
    Case(op="DynamicQuantizeMatMul", label="by column",
         inputs=(real(3, 8), i8(8, 5), np.abs(real(5)), i8(5))),
    Case(
        op="EmbedLayerNormalization",
        inputs=(
            RNG.integers(0, 9, (B, S)).astype(np.int32),
            RNG.integers(0, 2, (B, S)).astype(np.int32),
            real(9, 8),
            real(7, 8),
            real(2, 8),
            real(8),
            real(8),
            np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
        ),
        outputs=("y", "words", "sum"),
    ),
    Case(op="ExpandDims", inputs=(real(2, 3), np.int32(1)), constants=frozenset({1})),
    Case(op="FastGelu", inputs=(real(3, 8), real(8))),
    Case(op="FastGelu", label="plain", inputs=(real(3, 8),)),
    Case(
        op="FusedConv",
        inputs=(real(1, 3, 6, 6), real(4, 3, 3, 3), real(4), real(1, 4, 6, 6)),
        attributes={"pads": [1] * 4, "activation": "Relu"},
    ),
    Case(
        op="FusedConv",
        label="clip",
        inputs=(real(1, 3, 6, 6), real(4, 3, 3, 3), real(4)),
        attributes={"activation": "Clip", "activation_params": [0.0, 2.0]},
    ),
    Case(
        op="FusedGemm",
        inputs=(real(3, 4), real(4, 5), real(5)),
        attributes={"activation": "LeakyRelu", "activation_alpha": 0.3},
    ),
    Case(
        op="FusedMatMul",
        inputs=(real(2, 4, 3), real(2, 5, 4)),
        attributes={"transA": 1, "transB": 1, "alpha": 0.5},
    ),
    Case(
        op="FusedMatMul",
        label="batches",
        inputs=(real(3, 2, 4), real(2, 4, 5)),
        attributes={"transBatchA": 1},
    ),
    Case(op="GatherND", inputs=(real(3, 4), np.array([[0, 1], [2, 3]]))),
    Case(op="Gelu", inputs=(real(3, 8),)),
    Case(
        op="GroupQueryAttention",
        inputs=(
            real(B, S, 2 * H * 8), real(B, S, H * 8), real(B, S, H * 8), None, None,
            np.array([4, 4], np.int32), np.int32(S),
        ),
        attributes={"num_heads": 2 * H, "kv_num_heads": H},
        outputs=("y", "k", "v"),
        constants=frozenset({6}),
    ),
    Case(
        op="GroupQueryAttention",
        label="past, rotary, window",
        inputs=(
            real(B, 1, 2 * H * 16), real(B, 1, H * 16), real(B, 1, H * 16),
            real(B, H, 6, 16), real(B, H, 6, 16),
            np.array([5, 5], np.int32), np.int32(6),
            np.cos(real(16, 8)), np.sin(real(16, 8)),
        ),
        attributes={
            "num_heads": 2 * H, "kv_num_heads": H, "do_rotary": 1, "local_window_size": 3,
            "softcap": 5.0,
        },
        outputs=("y", "k", "v"),
        constants=frozenset({6}),
    ),
    Case(
        op="GroupQueryAttention",
        label="past of several lengths",
        inputs=(
            real(B, 1, 2 * H * 16), real(B, 1, H * 16), real(B, 1, H * 16),
            real(B, H, 6, 16), real(B, H, 6, 16),
            np.array([4, 2], np.int32), np.int32(6),
            np.cos(real(16, 8)), np.sin(real(16, 8)),
        ),
        attributes={
            "num_heads": 2 * H, "kv_num_heads": H, "do_rotary": 1, "local_window_size": 3,
            "softcap": 5.0,
        },
        outputs=("y", "k", "v"),
        compared=1,  # what lies behind a length is of no meaning
        constants=frozenset({6}),
    ),
    Case(
        op="GatherBlockQuantized",
        inputs=(
            u8(7, 20), np.array([[3, -1, 0], [6, 6, 2]]), np.abs(real(7, 3)), u8(7, 2),
        ),
        attributes={"bits": 4, "block_size": 16},
        constants=frozenset({0, 2, 3}),
    ),
    Case(
        op="GatherBlockQuantized",
        label="outside",
        inputs=(u8(5, 32), np.array([1, 9, -3, -6], np.int32), np.abs(real(5, 2))),
        attributes={"bits": 8, "block_size": 16},
        constants=frozenset({0, 2}),
    ),
    Case(
        op="MatMulIntegerToFloat",
        inputs=(u8(3, 8), i8(8, 5), f32(0.02), np.abs(real(5)), np.uint8(120), i8(5), real(5)),
    ),
    Case(
        op="MatMulNBits",
        inputs=(real(3, 40), u8(5, 2, 16), np.abs(real(10)), u8(5)),
        attributes={"K": 40, "N": 5, "bits": 4, "block_size": 32},
        constants=frozenset({1, 2, 3}),
    ),
    Case(
        op="MatMulNBits",
        label="rounded activations",
        inputs=(real(3, 70), u8(20, 3, 16), np.abs(real(60)), u8(40), None, real(20)),
        attributes={"K": 70, "N": 20, "bits": 4, "block_size": 32, "accuracy_level": 4},
        constants=frozenset({1, 2, 3, 5}),
    ),
    Case(
        op="MatMulNBits",
        label="rounded activations, weights of 8 bits",
        inputs=(real(3, 70), u8(20, 3, 32), np.abs(real(60)), u8(60)),
        attributes={"K": 70, "N": 20, "bits": 8, "block_size": 32, "accuracy_level": 4},
        constants=frozenset({1, 2, 3}),
    ),
    Case(
        op="MatMulNBits",
        label="groups",
        inputs=(
            real(3, 32), u8(5, 2, 8), np.abs(real(10)), None,
            RNG.permutation([0, 1] * 16).astype(np.int32),
        ),
        attributes={"K": 32, "N": 5, "bits": 4, "block_size": 16},
        constants=frozenset({1, 2, 4}),
    ),
    Case(
        op="MatMulNBits",
        label="of 8 bits",
        inputs=(real(3, 32), u8(5, 1, 32), np.abs(real(5))),
        attributes={"K": 32, "N": 5, "bits": 8, "block_size": 32},
        constants=frozenset({1, 2}),
    ),
    Case(
        op="MatMulNBits",
        label="bias and a tail",
        inputs=(real(2, 37), u8(20, 3, 8), np.abs(real(60)), u8(40), None, real(20)),
        attributes={"K": 37, "N": 20, "bits": 4, "block_size": 16},
        constants=frozenset({1, 2, 3, 5}),
    ),
    Case(op="MultiHeadAttention", inputs=QKV, attributes={"num_heads": H}),
    Case(
        op="MultiHeadAttention",
        label="bias and masks",
        inputs=(*QKV, real(3 * H * D), LENGTHS, real(1, H, S, S)),
        attributes={"num_heads": H},
    ),
    Case(
        op="MultiHeadAttention",
        label="past",
        inputs=(*QKV, None, None, None, *PAST),
        attributes={"num_heads": H, "unidirectional": 1},
        outputs=("y", "k", "v"),
    ),
    Case(
        op="MultiHeadAttention",
        label="cross",
        inputs=(real(B, S, H * D), real(B, H, 3, D), real(B, H, 3, D)),
        attributes={"num_heads": H},
    ),
    Case(op="Pad", inputs=(real(2, 3), np.array([0, 1, 0, 2]), np.array([1.5], np.float32)),
         constants=frozenset({1, 2})),
    Case(
        op="QAttention",
        inputs=(
            u8(B, S, 6), i8(6, 3 * H * D), real(3 * H * D), f32(0.02), f32(0.03), None,
            np.uint8(128), np.int8(0),
        ),
        attributes={"num_heads": H},
        constants=frozenset({1, 2, 3, 4, 6, 7}),
    ),
    Case(
        op="QGemm",
        inputs=(
            u8(3, 8), f32(0.02), np.uint8(120), i8(5, 8), np.abs(real(5)), np.zeros(5, np.int8),
            RNG.integers(-900, 900, 5).astype(np.int32), f32(0.5), np.uint8(100),
        ),
        attributes={"transB": 1},
        tolerance=1,
    ),
    Case(
        op="QGemm",
        label="real",
        inputs=(u8(3, 8), f32(0.02), np.uint8(120), i8(8, 5), f32(0.1), np.int8(3), None),
    ),
    Case(
        op="QLinearAdd",
        inputs=(u8(3, 8), f32(0.02), np.uint8(120), u8(8), f32(0.03), np.uint8(9), f32(0.05),
                np.uint8(100)),
        tolerance=1,
    ),
    Case(
        op="QLinearAveragePool",
        inputs=(u8(1, 3, 6, 6), f32(0.02), np.uint8(120), f32(0.01), np.uint8(100)),
        attributes={"kernel_shape": [3, 3], "pads": [1] * 4},
        tolerance=1,
    ),
    Case(
        op="QLinearConcat",
        inputs=(f32(0.05), np.uint8(100), u8(2, 3), f32(0.02), np.uint8(120), u8(2, 4), f32(0.03),
                np.uint8(9)),
        attributes={"axis": 1},
        constants=frozenset({0, 1, 3, 4, 6, 7}),
        tolerance=1,
    ),
    Case(
        op="QLinearConv",
        label="channels last",
        inputs=(u8(1, 5, 5, 3), f32(0.02), np.uint8(120), i8(4, 3, 3, 3), f32(0.01), np.int8(0),
                f32(0.1), np.uint8(100)),
        attributes={"channels_last": 1},
        constants=frozenset({1, 2, 3, 4, 5, 6, 7}),
        tolerance=1,
    ),
    Case(
        op="QLinearGlobalAveragePool",
        inputs=(u8(1, 6, 6, 3), f32(0.02), np.uint8(120), f32(0.01), np.uint8(100)),
        attributes={"channels_last": 1},
        tolerance=1,
    ),
    Case(
        op="QLinearLeakyRelu",
        inputs=(u8(3, 8), f32(0.02), np.uint8(120), f32(0.01), np.uint8(100)),
        attributes={"alpha": 0.2},
        tolerance=1,
    ),
    Case(
        op="QLinearMul",
        inputs=(i8(3, 8), f32(0.02), np.int8(12), i8(8), f32(0.03), np.int8(9), f32(0.05),
                np.int8(-5)),
        tolerance=1,
    ),
    Case(
        op="QLinearSigmoid",
        inputs=(i8(3, 8), f32(0.05), np.int8(12), f32(1 / 256), np.int8(-128)),
        tolerance=1,
    ),
    Case(
        op="QLinearSoftmax",
        inputs=(u8(3, 8), f32(0.05), np.uint8(120), f32(1 / 256), np.uint8(0)),
        attributes={"axis": -1, "opset": 13},
        tolerance=1,
    ),
    Case(
        op="QLinearWhere",
        inputs=(RNG.random((3, 4)) > 0.5, u8(3, 4), f32(0.05), np.uint8(120), u8(4), f32(0.03),
                np.uint8(9), f32(0.04), np.uint8(100)),
        constants=frozenset({2, 3, 5, 6, 7, 8}),
        tolerance=1,
    ),
    Case(
        op="NhwcMaxPool",
        inputs=(u8(1, 6, 6, 3),),
        attributes={"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4},
    ),
    Case(
        op="DynamicQuantizeLSTM",
        inputs=(real(4, 2, 6), i8(1, 6, 4 * 8), i8(1, 8, 4 * 8), real(1, 8 * 8), None, None, None,
                None, np.full(1, 0.01, np.float32), np.zeros(1, np.int8),
                np.full(1, 0.01, np.float32), np.zeros(1, np.int8)),
        attributes={"hidden_size": 8},
        outputs=("y", "h", "c"),
        constants=frozenset({1, 2, 8, 9, 10, 11}),
        tolerance=1e-5,
    ),
    Case(op="QuickGelu", inputs=(real(3, 8),), attributes={"alpha": 1.5}),
    Case(op="QuantizeLinear", inputs=(real(3, 8), f32(0.02), np.uint8(120))),
    Case(op="DequantizeLinear", inputs=(u8(3, 8), f32(0.02), np.uint8(120))),
    Case(
        op="RotaryEmbedding",
        inputs=(real(B, S, H * D), np.array([[3, 4, 5, 6, 7]] * B), COS, SIN),
    ),
    Case(
        op="RotaryEmbedding",
        label="interleaved",
        inputs=(real(B, H, S, D), np.array([2]), COS, SIN),
        attributes={"interleaved": 1},
    ),
    Case(
        op="SkipLayerNormalization",
        inputs=(real(B, S, 8), real(B, S, 8), real(8), real(8), real(8)),
        outputs=("y", "", "", "sum"),
    ),
    Case(
        op="SkipSimplifiedLayerNormalization",
        inputs=(real(B, S, 8), real(B, S, 8), real(8)),
        outputs=("y", "", "", "sum"),
    ),
    Case(op="Trilu", inputs=(real(4, 5), np.int64(1)), constants=frozenset({1})),
    Case(
        op="DynamicQuantizeLSTM",
        label="per channel, both directions, from given states",
        inputs=(real(4, 3, 6), u8(2, 6, 4 * 8), u8(2, 8, 4 * 8), real(2, 8 * 8), None,
                real(2, 3, 8), real(2, 3, 8), None,
                *(SCALES, np.full((2, 4 * 8), 120, np.uint8)) * 2),
        attributes={"hidden_size": 8, "direction": "bidirectional"},
        outputs=("y", "h", "c"),
        constants=frozenset({1, 2, 8, 9, 10, 11}),
    ),
    Case(
        op="DynamicQuantizeLSTM",
        label="sequences of several lengths",
        inputs=(real(5, 3, 6), i8(2, 6, 4 * 8), i8(2, 8, 4 * 8), real(2, 8 * 8),
                np.array([4, 2, 3], np.int32), real(2, 3, 8), real(2, 3, 8), None,
                *(np.full(2, 0.01, np.float32), np.zeros(2, np.int8)) * 2),
        attributes={"hidden_size": 8, "direction": "bidirectional"},
        outputs=("y", "h", "c"),
        constants=frozenset({1, 2, 8, 9, 10, 11}),
    ),
]  # fmt: skip

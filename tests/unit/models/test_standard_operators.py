"""Operators of the standard on ONNX's own cases: each is right."""

from __future__ import annotations

import pytest

from benchmarks.models.onnx_cases import KNOWN, RIGHT, cases_of, verdict

# Operators by the module of `onnx.backend.test.case.node` that has their cases.
OPERATORS = {
    "bitcast": "BitCast",
    "bitshift": "BitShift",
    "bitwisenot": "BitwiseNot",
    "blackmanwindow": "BlackmanWindow",
    "cast": "Cast",
    "castlike": "CastLike",
    "causal_conv_with_state": "CausalConvWithState",
    "col2im": "Col2Im",
    "compress": "Compress",
    "deformconv": "DeformConv",
    "dequantizelinear": "DequantizeLinear",
    "det": "Det",
    "dft": "DFT",
    "dynamicquantizelinear": "DynamicQuantizeLinear",
    "eyelike": "EyeLike",
    "flexattention": "FlexAttention",
    "gridsample": "GridSample",
    "hammingwindow": "HammingWindow",
    "hannwindow": "HannWindow",
    "maxunpool": "MaxUnpool",
    "melweightmatrix": "MelWeightMatrix",
    "mod": "Mod",
    "nonmaxsuppression": "NonMaxSuppression",
    "nonzero": "NonZero",
    "quantizelinear": "QuantizeLinear",
    "roialign": "RoiAlign",
    "stft": "STFT",
    "tensorscatter": "TensorScatter",
    "tfidfvectorizer": "TfIdfVectorizer",
    "unique": "Unique",
}


@pytest.mark.parametrize(("module", "op"), OPERATORS.items(), ids=list(OPERATORS.values()))
def test_an_operator_is_right_on_the_cases_of_the_standard(module: str, op: str) -> None:
    verdicts = {case.name: verdict(case) for case in cases_of(op, module)}
    assert verdicts
    assert {name: text for name, text in verdicts.items() if text not in (RIGHT, KNOWN)} == {}

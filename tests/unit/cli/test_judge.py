"""`tuner judge` from the shell's side: verdicts, exit codes, the JSON document, what it
asks for."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import tuner as package
from tests.support.command import Tuner

SPEC = "elementwise:M=8,N=12,act=relu"
KERNEL = """
int elementwise_m8_n12_relu(const float *x, float *y) {
  for (int i = 0; i < 96; ++i) y[i] = x[i] != x[i] || x[i] > 0 ? x[i] : 0;
  return 0;
}
"""
FIELDS = {"workload", "verdict", "message", "element", "max_rel_error", "time"}


@pytest.fixture
def kernel(home: Path) -> Path:
    path = home / "kernel.c"
    path.write_text(KERNEL)
    return path


def test_a_right_kernel_ends_with_0(tuner: Tuner, kernel: Path) -> None:
    called = tuner("judge", SPEC, str(kernel), "--no-race", "--json")
    assert called.code == 0, called.err
    document = called.document
    assert set(document) == FIELDS
    assert (document["verdict"], document["element"], document["time"]) == ("verified", None, None)
    assert document["max_rel_error"] == 0
    assert document["workload"]["op"] == "elementwise"


def test_a_wrong_one_ends_with_1_and_its_element(tuner: Tuner, kernel: Path) -> None:
    kernel.write_text(KERNEL.replace("return 0;", "y[17] = 2; return 0;"))
    called = tuner("judge", SPEC, str(kernel), "--no-race")
    assert called.code == 1
    assert called.out.startswith("wrong_element: ")
    assert "first wrong element: Y[1, 5] is 2, expected " in called.out


def test_the_signature_is_a_kernels_beginning(tuner: Tuner, kernel: Path) -> None:
    called = tuner("judge", SPEC, "--signature")
    assert called.code == 0
    assert "int elementwise_m8_n12_relu(const float *in_X, float *out_Y);" in called.out
    kernel.write_text(called.out + KERNEL)
    assert tuner("judge", SPEC, str(kernel), "--no-race").code == 0
    assert tuner("judge", SPEC, "--signature", "--json").document["signature"] in called.out
    assert package.c_signature(SPEC) == called.out


def test_the_signature_for_a_gpu_is_in_its_language(tuner: Tuner) -> None:
    spec = f"{SPEC},dtype=float16"
    called = tuner("judge", spec, "--signature", "--target", "cuda:sm_90")
    assert called.code == 0, called.err
    assert called.out.startswith("#include <cuda_fp16.h>\n")
    assert (
        'extern "C" __global__ void elementwise_m8_n12_relu_f16('
        "const __half *in_X, __half *out_Y);" in called.out
    )
    assert package.cuda_signature(spec) == called.out


def test_of_a_notation(tuner: Tuner, home: Path) -> None:
    notation = home / "scale.txt"
    notation.write_text("kernel scale(A: f32[M]) -> (C: f32[M]) {\n  C[i] = A[i] * 2\n}\n")
    source = home / "scale.c"
    source.write_text(
        "int scale_m9(const float *a, float *c) "
        "{ for (int i = 0; i < 9; ++i) c[i] = 2 * a[i]; return 0; }"
    )
    options = ("--notation", str(notation), "--shapes", "M=9", "--no-race")
    assert tuner("judge", str(source), *options).code == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((SPEC,), "a FILE with the kernel's text is missing"),
        ((SPEC, "kernel.cu"), "kernel.cu is CUDA C++; give its launch by --grid and --block"),
        ((SPEC, "KERNEL", "--grid", "1"), "CUDA C++ comes with both, one to three numbers each"),
        ((SPEC, "KERNEL", "--grid", "1,2,3,4", "--block", "1"), "one to three numbers each"),
        ((SPEC, "KERNEL", "--grid", "one", "--block", "1"), "--grid one: give one to three"),
        ((SPEC, "KERNEL", "--grid", "1", "--block", "1"), "'cpu' is a CPU, and the source is CUDA"),
        ((SPEC, "/nowhere.c"), "/nowhere.c: No such file or directory"),
        ((SPEC, "/nowhere.c", "--server", "http://127.0.0.1:1"), "leave out --server"),
        (("dense:M=2,N=2,K=2,const=W", "KERNEL", "--no-race"), "leave const=W away"),
    ],
)
def test_bad_requests_end_with_2(
    arguments: tuple[str, ...], text: str, tuner: Tuner, kernel: Path
) -> None:
    called = tuner("judge", *(str(kernel) if word == "KERNEL" else word for word in arguments))
    assert (called.code, text in called.err) == (2, True), called.err


@pytest.mark.slow
def test_raced_against_the_default_schedule(home: Path) -> None:
    verdict = package.judge(SPEC, KERNEL)
    assert verdict.verified
    assert verdict.time is not None
    assert verdict.time.rival == "default"
    low, high = verdict.time.ratio.ci95
    assert 0 < low <= verdict.time.ratio.value <= high < math.inf
    assert 0 < (verdict.time.roofline_fraction or 0) < 1.2

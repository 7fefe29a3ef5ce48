"""NVRTC on strangers' texts: what it reads, what it says, and which launches a GPU takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cuda_cheats import HONEST
from tests.support.targets import SM_80, SM_90
from tuner.errors import UsageError
from tuner.export.header import cuda_signature_of
from tuner.measure.foreign.compiler import MOST_SOURCE_BYTES
from tuner.measure.foreign.cuda_compiler import compile_cuda
from tuner.measure.foreign.dimensions import (
    Dimensions,
    dimensions_from_document,
    dimensions_given,
    dimensions_of,
    dimensions_to_document,
)
from tuner.measure.foreign.verdict import Guilty, Verdict, VerdictName
from tuner.runtime.nvrtc import find_nvrtc, header_folders
from tuner.target.target import Target
from tuner.workload.spec import parse_spec

pytestmark = pytest.mark.nvrtc
needs_nvrtc = pytest.mark.skipif(
    find_nvrtc() is None, reason="no NVRTC: neither a CUDA toolkit nor the `cuda` extra"
)
needs_headers = pytest.mark.skipif(not header_folders(), reason="no headers of a CUDA toolkit")


def refusal(source: str) -> Verdict:
    with pytest.raises(Guilty) as guilty:
        compile_cuda(source, SM_90)
    return guilty.value.verdict


@needs_nvrtc
@pytest.mark.parametrize("target", [SM_80, SM_90], ids=lambda target: str(target.tvm["arch"]))
def test_a_kernel_becomes_machine_code(target: Target) -> None:
    assert compile_cuda(HONEST, target).startswith(b"\x7fELF")


@needs_nvrtc
@needs_headers
def test_headers_that_our_own_kernels_include() -> None:
    names = ("cuda_fp16.h", "cuda_bf16.h", "mma.h", "math_constants.h")
    assert compile_cuda("".join(f"#include <{name}>\n" for name in names) + HONEST, SM_90)


@needs_nvrtc
@needs_headers
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "int32"])
def test_signatures_are_the_beginnings_of_sources(dtype: str) -> None:
    workload = parse_spec(f"matmul:M=2,N=2,K=2,dtype={dtype}")
    signature = cuda_signature_of(workload)
    assert compile_cuda(signature + signature.partition("*/")[2].replace(";", " {}"), SM_90)


@needs_nvrtc
@pytest.mark.parametrize(
    "line",
    [
        "#include <unistd.h>",
        "#include <stdio.h>",
        '#include "/proc/self/environ"',
        '#include "/etc/hostname"',
        '#include "../kernel.cu"',
        '#define NAME "/etc/passwd"\n#include NAME',
        '#inc\\\nlude "/etc/passwd"',
        '%:include "/etc/passwd"',
    ],
)
def test_no_other_file_is_included(line: str) -> None:
    assert refusal(f"{line}\n{HONEST}").name is VerdictName.HEADER_REFUSED


@needs_nvrtc
@pytest.mark.parametrize(
    "line", ['#include "FILE"', '#if __has_include("FILE")\n#error there\n#endif']
)
def test_nobody_learns_what_files_there_are(line: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    there, missing = (
        refusal(f"{line.replace('FILE', str(tmp_path / name))}\n{HONEST}\n#error end").message
        for name in ("secret", "absent")
    )
    assert there.replace("secret", "absent") == missing


@needs_nvrtc
def test_bad_source_is_refused_with_the_compilers_first_lines() -> None:
    verdict = refusal("int oops = missing;\n" + HONEST)
    assert verdict.name is VerdictName.BUILD_ERROR
    assert 'kernel.cu(1): error: identifier "missing" is undefined' in verdict.message
    assert len(refusal("int oops = missing;\n" * 5000).message) < 5000


@needs_nvrtc
@pytest.mark.slow
def test_growth_is_bounded() -> None:
    """Macros that would become 32 million declarations."""
    macros = "#define A(x) x x x x x x x x\n#define B(x) A(A(A(A(x))))\n"
    verdict = refusal(f"{macros}{HONEST}__device__ void g() {{ B(B(int y;)) }}")
    assert verdict.name is VerdictName.BUILD_ERROR


def test_long_sources_are_refused() -> None:
    verdict = refusal(HONEST + "/*" + "x" * MOST_SOURCE_BYTES + "*/")
    assert (verdict.name, "at most 262144" in verdict.message) == (VerdictName.BUILD_ERROR, True)


def test_without_nvrtc_its_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.measure.foreign.cuda_compiler.find_nvrtc", lambda: None)
    with pytest.raises(UsageError, match="install nvidia-cuda-nvrtc, or set CUDA_HOME"):
        compile_cuda(HONEST, SM_90)


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        (Dimensions(grid=(1, 1, 1), block=(2048, 1, 1)), "2048 threads along x"),
        (Dimensions(grid=(1, 1, 1), block=(1, 1, 65)), "65 threads along z"),
        (Dimensions(grid=(1, 1, 1), block=(64, 32, 1)), "2048 threads in a block"),
        (Dimensions(grid=(1, 1, 65536), block=(1, 1, 1)), "65536 blocks along z"),
        (Dimensions(grid=(2**31, 1, 1), block=(1, 1, 1)), "2147483648 blocks along x"),
        (Dimensions(grid=(0, 1, 1), block=(1, 1, 1)), "extents are at least 1"),
        (Dimensions(grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=-1), "extents are at least 1"),
        (Dimensions(grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=200 << 10), None),
        (Dimensions(grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=228 << 10), "shared memory"),
    ],
)
def test_what_a_gpu_cannot_launch(launch: Dimensions, says: str | None) -> None:
    fault = launch.fault(SM_90)
    assert fault is None if says is None else fault is not None and says in fault
    assert dimensions_from_document(dimensions_to_document(launch)) == launch


def test_shared_memory_is_that_of_the_gpu() -> None:
    launch = Dimensions(grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=200 << 10)
    assert launch.fault(SM_90) is None and "shared memory" in str(launch.fault(SM_80))


def test_dimensions_that_are_left_out_are_1() -> None:
    assert dimensions_of([7], [64, 2], 16) == Dimensions(
        grid=(7, 1, 1), block=(64, 2, 1), shared_bytes=16
    )
    assert dimensions_given(None, None, 0) is None
    for grid, block in (([1], None), (None, [1]), ([], [1]), ([1], [1, 1, 1, 1])):
        with pytest.raises(UsageError, match="CUDA C\\+\\+ comes with both"):
            dimensions_given(grid, block, 0)

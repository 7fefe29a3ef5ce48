"""The other route to cubins: NVRTC compiles what nvcc does, keeps it apart, and says
what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cuda_sources import sources
from tests.support.targets import SM_90
from tuner.errors import UsageError
from tuner.lowering.compiler import BuildError
from tuner.lowering.cuda.nvcc import find_nvcc
from tuner.lowering.cuda.nvrtc import NvrtcCompiler, any_compiler, nvrtc_compiler
from tuner.runtime.nvrtc import find_nvrtc, header_folders
from tuner.target.cuda import cuda_targets
from tuner.target.detect import parse_target

pytestmark = pytest.mark.nvrtc
needs_nvrtc = pytest.mark.skipif(
    find_nvrtc() is None or not header_folders(),
    reason="no NVRTC, or no headers of a CUDA toolkit: the `cuda` extra has both",
)


@pytest.mark.slow
@needs_nvrtc
@pytest.mark.parametrize("arch", cuda_targets())
@pytest.mark.parametrize("spec", ["softmax:M=100,N=1000", "matmul:M=128,N=256,K=512,dtype=float16"])
def test_sources_compile(spec: str, arch: str, tmp_path: Path) -> None:
    cubin = nvrtc_compiler(tmp_path).compile(
        sources(spec, arch, 1)[0], parse_target(f"cuda:{arch}")
    )
    assert cubin.code.startswith(b"\x7fELF")
    (kernel,) = cubin.kernels
    assert 0 < kernel.registers <= 255 and not kernel.spills


@needs_nvrtc
def test_refusals_have_their_text_and_are_kept(tmp_path: Path) -> None:
    compiler, target = nvrtc_compiler(tmp_path), SM_90
    for _ in range(2):
        with pytest.raises(BuildError, match='"missing" is undefined'):
            compiler.compile("int oops = missing;", target)
    assert len(list(tmp_path.rglob("report.json"))) == 1


@needs_nvrtc
def test_nvcc_comes_first(tmp_path: Path) -> None:
    assert isinstance(any_compiler(tmp_path), NvrtcCompiler) == (find_nvcc() is None)


def test_a_missing_library_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.lowering.cuda.nvrtc.find_nvrtc", lambda: None)
    with pytest.raises(UsageError, match="nvidia-cuda-nvrtc"):
        nvrtc_compiler(tmp_path)


def test_a_toolkit_named_by_the_environment_comes_first(tmp_path: Path) -> None:
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libnvrtc.so.13").touch()
    (tmp_path / "include" / "cccl").mkdir(parents=True)
    (tmp_path / "include" / "cuda_fp16.h").touch()
    environment = {"CUDA_HOME": str(tmp_path)}
    assert find_nvrtc(environment) == tmp_path / "lib64" / "libnvrtc.so.13"
    assert header_folders(environment) == (tmp_path / "include", tmp_path / "include" / "cccl")

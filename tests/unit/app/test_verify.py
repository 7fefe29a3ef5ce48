"""`tuner verify` on real exports of hand-written kernels: right, wrong, slow, crashing,
and directories made to do harm."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.support.gpu_machine import REASON
from tests.support.relu_kernel import relu_kernel
from tests.support.targets import host_target
from tuner.app.export.manifest_workloads import workload_of
from tuner.app.export.verdicts import Retimed, VerificationError
from tuner.app.export.verify import verify_export
from tuner.errors import UsageError, WorkloadError
from tuner.export.cuda import ExportCudaKernel, export_cuda_library
from tuner.export.errors import ManifestError
from tuner.export.kernel import Variant
from tuner.export.library import export_library
from tuner.export.manifest import verify_hashes
from tuner.runtime.cuda_module import CudaModule, Launch
from tuner.settings import Settings
from tuner.target.architectures.x86_64.cpuid import LEVELS
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

SETTINGS = Settings(run_timeout_s=20.0)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("verify") / "kit"
    export_library([relu_kernel()], directory, "kit")
    return directory


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def edit(directory: Path, change: Callable[[Any], None]) -> None:
    path = directory / "manifest.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_a_right_library_is_right(exported: Path) -> None:
    report = verify_export(exported, SETTINGS, seed=5)
    (verdict,) = report.functions
    assert isinstance(verdict.result, Retimed), verdict.result
    assert (
        report.ok
        and report.seed == 5
        and verdict.spec == "elementwise:M=8,N=128,act=relu,dtype=float32"
    )
    assert (
        verdict.result.max_rel_error == 0.0
        and verdict.result.ci95_s[0] <= verdict.result.median_s <= verdict.result.ci95_s[1]
    )
    assert verdict.result.ratio == pytest.approx(
        verdict.result.median_s / verdict.manifest_median_s
    )
    assert verdict.same_target and report.unlisted == ()


def test_each_run_has_inputs_of_its_own(exported: Path) -> None:
    assert verify_export(exported, SETTINGS).seed != verify_export(exported, SETTINGS).seed


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y[i] = x[i] > 0 ? x[i] : -0.125f * x[i];", "wrong_answer"),
        ("y[i] = x[0] == 77.0f ? 1 : *(volatile float *)8;", "run_crash"),
        ('for (;;) __asm__ volatile("");', "run_timeout"),
    ],
)
def test_a_wrong_library_is_found_out(tmp_path: Path, body: str, message: str) -> None:
    export_library([relu_kernel(body)], tmp_path / "kit", "kit")
    report = verify_export(tmp_path / "kit", Settings(run_timeout_s=2.0))
    (verdict,) = report.functions
    assert (
        isinstance(verdict.result, VerificationError)
        and message in str(verdict.result)
        and not report.ok
    )


def test_another_machines_instructions_are_named(tmp_path: Path) -> None:
    lacking = next(
        name
        for name in ("amx-int8", "avx512vp2intersect", "avxvnniint8", "sse4a")
        if name not in host_target().isa
    )
    export_library([replace(relu_kernel(), isa=(lacking,))], tmp_path / "kit", "kit")
    (verdict,) = verify_export(tmp_path / "kit", SETTINGS).functions
    assert lacking in str(verdict.result) and "this CPU lacks" in str(verdict.result)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels are of x86-64")
def test_every_variant_is_run(tmp_path: Path) -> None:
    """The kernel this CPU would call is right; the one for lesser CPUs is not, and
    would never be called here."""
    right, wrong = relu_kernel(), relu_kernel("y[i] = x[i];")
    for name, lesser in (("right", right), ("wrong", wrong)):
        variant = Variant(
            name="x86-64", isa=LEVELS["x86-64"], schedule="default",
            object_code=lesser.object_code, tvm_symbol=lesser.tvm_symbol,
            prepack=None, median_s=2e-7, ci95_s=(1e-7, 3e-7), max_rel_error=0.0,
        )  # fmt: skip
        kernel = replace(right, isa=LEVELS["x86-64-v2"], variants=(variant,))
        export_library([kernel], tmp_path / name, "kit")
        (verdict,) = verify_export(tmp_path / name, SETTINGS).functions
        if name == "right":
            assert isinstance(verdict.result, Retimed) and set(verdict.result.variants) == {
                "x86-64"
            }
        else:
            assert isinstance(verdict.result, VerificationError) and "wrong_answer" in str(
                verdict.result
            )


def test_a_slower_function_is_measured_against_its_manifest(copy: Path) -> None:
    def brag(document: Any) -> None:
        document["functions"][0]["median_s"] = 1e-12

    edit(copy, brag)
    assert verify_export(copy, SETTINGS).slower_percent > 1000


MISLEADING: dict[str, tuple[Callable[[Any], None], str]] = {
    "another operator": (lambda f: f["workload"]["params"].update(act="tanh"), "key is"),
    "another shape": (lambda f: f["workload"]["params"].update(N=64), "key is"),
    "an absurd shape": (lambda f: f["workload"]["params"].update(N=1 << 40), "N"),
    "no operator": (lambda f: f["workload"].update(op="../../bin/sh"), "operator"),
    "nothing at all": (lambda f: f["workload"].update(op=None), "neither an operator"),
    "a nested parameter": (lambda f: f["workload"]["params"].update(N=[[1]]), "plain values"),
    "a tree that is none": (lambda f: f["workload"].update(op=None, expression={"stages": 3}), ""),
    "other constants": (lambda f: f["workload"].update(constants=["X"]), "constant"),
    "a foreign symbol": (lambda f: f.update(symbol="system"), "no function"),
}


@pytest.mark.parametrize("case", MISLEADING)
def test_a_misleading_manifest_fails_the_function(copy: Path, case: str) -> None:
    change, message = MISLEADING[case]
    edit(copy, lambda document: change(document["functions"][0]))
    report = verify_export(copy, SETTINGS)
    assert not report.ok and message in str(report.functions[0].result)


def test_the_workload_of_a_tree_survives(exported: Path) -> None:
    kernel = relu_kernel()
    function = json.loads((exported / "manifest.json").read_text())["functions"][0]
    assert workload_of(function).key == kernel.workload_key
    with pytest.raises(WorkloadError):
        workload_of({**function, "workload": {**function["workload"], "numerics": "wild"}})
    with pytest.raises(ManifestError, match="arguments"):
        workload_of({**function, "arguments": function["arguments"][::-1]})


NOTATION = "kernel twice(A: f32[M, N]) -> (B: f32[M, N]) {\n  B[i, j] = A[i, j] + A[i, j]\n}"


def on_gpu(workload: Workload) -> ExportCudaKernel:
    """An export of a kernel for GPUs, never to be run."""
    expression = workload.expression
    outputs = tuple(expression.tensor(name) for name in expression.outputs)
    named = tuple(tensor.name for tensor in (*expression.inputs, *outputs))
    launch = Launch(
        kernel="k_kernel", arguments=named, grid=(1, 1, 1), block=(32, 1, 1), shared_bytes=0
    )
    module = CudaModule(
        symbol="k",
        inputs=expression.inputs,
        outputs=outputs,
        workspace=(),
        launches=(launch,),
        cubins=(("sm_90", b"\x7fELF"),),
    )
    measured = {
        "target": {"key": "0" * 64, "kind": "cuda", "name": "a GPU"}, "isa": ["sm_90"],
        "threads": 1, "median_s": 1e-6,
        "ci95_s": [1e-6, 1e-6], "verified": True, "max_rel_error": 0.0, "provenance": {},
    }  # fmt: skip
    return ExportCudaKernel(module=module, workload=workload, measured=measured)


@pytest.mark.parametrize(
    "workload",
    [
        parse_spec("matmul:M=8,N=8,K=8,numerics=fast"),
        parse_spec("dense:M=8,N=8,K=8,bias=true,const=W"),
        workload_from_notation(NOTATION, {"M": 8, "N": 16}),
    ],
    ids=lambda workload: workload.spec,
)
def test_a_kernel_for_gpus_says_what_it_computes_and_needs_one(
    tmp_path: Path, workload: Workload
) -> None:
    export_cuda_library([on_gpu(workload)], tmp_path / "kit", "kit")
    (function,) = verify_hashes(tmp_path / "kit").functions
    assert workload_of(function) == workload
    if REASON is not None:
        with pytest.raises(VerificationError, match="kit is for GPUs, and this machine"):
            verify_export(tmp_path / "kit", SETTINGS)


def harmful(directory: Path, marker: Path) -> None:
    """A library whose loading leaves a mark."""
    source = directory / "evil.c"
    mark = (
        f'__attribute__((constructor)) static void mark(void) {{ fclose(fopen("{marker}", "w")); }}'
    )
    source.write_text(f"#include <stdio.h>\n{mark}\n")
    assert os.system(f"cc -shared -fPIC -o {directory}/lib/libkit.so {source}") == 0
    source.unlink()


def test_an_altered_library_is_never_loaded(copy: Path, tmp_path: Path) -> None:
    harmful(copy, tmp_path / "mark")
    with pytest.raises(ManifestError, match="was altered"):
        verify_export(copy, SETTINGS)
    assert not (tmp_path / "mark").exists()


def test_a_harmful_library_is_loaded_in_the_fence_alone(copy: Path, tmp_path: Path) -> None:
    """Its hash is right, so it runs; but not in this process, and what it is not is found out."""
    harmful(copy, tmp_path / "mark")
    digest = sha256((copy / "lib/libkit.so").read_bytes()).hexdigest()
    edit(copy, lambda document: document["files"].update({"lib/libkit.so": digest}))
    assert not verify_export(copy, SETTINGS).ok
    maps = Path("/proc/self/maps").read_text()
    assert str(copy) not in maps and "tuner-scratch-verify-" not in maps


@pytest.mark.parametrize("place", ["lib/libkit.so", "manifest.json", "lib", "include/kit.h"])
def test_links_are_refused(copy: Path, tmp_path: Path, place: str) -> None:
    shutil.move(copy / place, tmp_path / "moved")
    (copy / place).symlink_to(tmp_path / "moved")
    with pytest.raises(ManifestError, match="is a link"):
        verify_export(copy, SETTINGS)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("place", ["lib/libkit.so", "manifest.json"])
def test_pipes_and_folders_are_refused(copy: Path, place: str) -> None:
    (copy / place).unlink()
    os.mkfifo(copy / place)
    with pytest.raises(ManifestError, match="no plain file"):
        verify_export(copy, SETTINGS)
    (copy / place).unlink()
    (copy / place).mkdir()
    with pytest.raises(ManifestError, match="no plain file"):
        verify_export(copy, SETTINGS)


def test_huge_files_are_refused(copy: Path) -> None:
    with (copy / "lib/libkit.a").open("r+b") as file:
        file.truncate(5 << 30)  # sparse
    with pytest.raises(ManifestError, match="larger than 4 GiB"):
        verify_export(copy, SETTINGS)
    with (copy / "manifest.json").open("r+b") as file:
        file.truncate(65 << 20)
    with pytest.raises(ManifestError, match="larger than 64 MiB"):
        verify_export(copy, SETTINGS)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_truncated_manifests_are_refused(copy: Path, share: float) -> None:
    content = (copy / "manifest.json").read_bytes()
    (copy / "manifest.json").write_bytes(content[: int(share * len(content))])
    with pytest.raises(ManifestError, match="not valid JSON"):
        verify_export(copy, SETTINGS)


def test_unlisted_files_are_named_and_nothing_is_written(copy: Path) -> None:
    (copy / "numpy.py").write_text("raise SystemExit")
    before = sorted((path, path.lstat().st_mtime_ns) for path in copy.rglob("*"))
    report = verify_export(copy, SETTINGS)
    assert report.ok and report.unlisted == ("numpy.py",)
    assert sorted((path, path.lstat().st_mtime_ns) for path in copy.rglob("*")) == before


def test_what_is_no_directory_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no directory"):
        verify_export(tmp_path / "nowhere", SETTINGS)

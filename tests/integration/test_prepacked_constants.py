"""Constants packed ahead, end to end: compiled, linked, measured, exported, and called
from C, C++ and Python."""

from __future__ import annotations

import ctypes
import gc
import json
import shutil
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.targets import host_target
from tuner.app.export.verdicts import Retimed
from tuner.app.export.verify import verify_export
from tuner.export.errors import ExportRefused
from tuner.export.examples import example_inputs
from tuner.export.kernel import Argument, ExportKernel, TargetName
from tuner.export.library import export_library, function_of
from tuner.lowering.compiler import Compiled, compile_program, compile_stored
from tuner.measure.assignment import Assignment, Lane, Request
from tuner.measure.outcome import Timed
from tuner.measure.runner import RunnerProcess
from tuner.runtime.link import link
from tuner.runtime.loader import Library, LibraryError, aligned_empty
from tuner.runtime.prepack import prepack_from
from tuner.settings import Settings
from tuner.spaces.by_target import space_of
from tuner.spaces.program.prepacking import split
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec
from tuner.workload.workload import Workload

MATMUL = "matmul:M=20,N=48,K=64,const=B"
CONV = "conv2d:N=1,H=8,W=8,CI=4,CO=32,KH=3,KW=3,pad=1,const=W"
SPECS = (
    MATMUL,
    CONV,
    "dense:M=8,N=32,K=64,bias=true,act=relu,const=W+bias",
    "matmul:M=40,N=32,K=64,dtype=bfloat16,const=A",
    "dense:M=8,N=32,K=64,dtype=int8,const=W",
)
Array = np.ndarray[Any, np.dtype[Any]]


def compiled(workload: Workload, seed: int = 0, threads: int = 1) -> Compiled:
    """Some candidate of the space that packs a constant ahead."""
    space, target = space_of(workload, host_target(), threads), host_target()
    for point in space.space.sample(np.random.default_rng(seed), 1000):
        program = space.program(space.space.config(point))
        if split(program).prologue is not None:
            return compile_program(program, target, "tuned_kernel")
    raise AssertionError("no candidate packs a constant")


def exportable(spec: str, seed: int = 0, threads: int = 1) -> ExportKernel:
    workload, machine = parse_spec(spec), host_target()
    made, expression = compiled(workload, seed, threads), workload.expression
    outputs = [expression.tensor(name) for name in expression.outputs]
    kernel = ExportKernel(
        symbol=f"kernel_{workload.op}_{seed}",
        workload_key=workload.key,
        op=workload.op,
        params=workload.params,
        constants=workload.constants,
        arguments=tuple(
            Argument(
                name=tensor.name,
                dtype=tensor.dtype,
                shape=tensor.shape,
                role="out" if tensor in outputs else "in",
            )
            for tensor in (*expression.inputs, *outputs)
        ),
        target=TargetName(key=machine.key, kind="cpu", name=machine.name),
        isa=machine.isa,
        threads=threads,
        object_code=made.object_code,
        tvm_symbol="__tvm_ffi_tuned_kernel",
        prepack=made.prepack,
        median_s=1e-6,
        ci95_s=(1e-6, 1e-6),
        verified=True,
        max_rel_error=0.0,
    )
    inputs = {
        tensor.name: array
        for tensor, array in zip(expression.inputs, example_inputs(kernel), strict=True)
    }
    right = evaluate(expression, inputs)
    return replace(
        kernel, expected=tuple(right[name].astype(np.float64) for name in expression.outputs)
    )


@pytest.fixture(scope="module")
def kernels() -> list[ExportKernel]:
    return [exportable(MATMUL), exportable(MATMUL, seed=5), exportable(CONV, threads=2)]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, kernels: list[ExportKernel]) -> Path:
    directory = tmp_path_factory.mktemp("prepacked") / "kit"
    export_library(kernels, directory, "kit")
    return directory


@pytest.mark.parametrize("spec", SPECS)
def test_candidates_are_right_and_timed_as_all_others(spec: str, tmp_path: Path) -> None:
    workload, kernel = parse_spec(spec), exportable(spec)
    path = tmp_path / "lib.so"
    path.write_bytes(link("kernel", [function_of(kernel)]))
    with RunnerProcess() as runner:
        runner.prepare(Assignment(workload=workload, lane=Lane(name="cpu:0", cores=(0,))))
        request = Request(
            name="candidate", library=str(path), symbol=str(kernel.symbol), verification="promotion"
        )
        outcome = runner.measure(request)
    assert isinstance(outcome, Timed), outcome


def test_a_stored_schedule_gives_the_same_code() -> None:
    made = compiled(parse_spec(MATMUL))
    stored = made.schedule
    assert compile_stored(stored, host_target()) == made.object_code
    assert (
        stored.prepack is not None
        and prepack_from(json.loads(json.dumps(stored.prepack))) == made.prepack
    )


@pytest.fixture
def matmul(exported: Path, kernels: list[ExportKernel]) -> Any:
    return Library(exported / "lib" / "libkit.so").function(str(kernels[0].symbol))


def arrays(seed: int = 0) -> tuple[Array, Array]:
    a, b = make_inputs(parse_spec(MATMUL).expression, seed, "normal").values()
    return a, b


def test_packing_happens_once_for_each_array(matmul: Any) -> None:
    a, b = arrays()
    other = b[::-1].copy()
    for _ in range(2):
        np.testing.assert_allclose(matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(matmul(a, other), a @ other, rtol=1e-4, atol=1e-4)
    assert len(matmul.library._kept) == 2
    first = a @ b
    b[:] = 0  # against the rule; what was packed stays until it is forgotten
    np.testing.assert_allclose(matmul(a, b), first, rtol=1e-4, atol=1e-4)
    matmul.library.forget()
    assert not matmul(a, b).any()


@pytest.mark.slow
def test_packed_constants_end_with_their_arrays(matmul: Any) -> None:
    a, b = arrays()
    for seed in range(4):
        fresh = b + np.float32(seed)
        np.testing.assert_allclose(matmul(a, fresh), a @ fresh, rtol=1e-3, atol=1e-3)
        del fresh
        gc.collect()
        assert not matmul.library._kept


def test_what_a_kernel_reads_stays_until_it_has_ended(
    matmul: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may pack the same array anew, or have all forgotten, while a
    kernel runs outside of Python's lock."""
    (a, b), library = arrays(), matmul.library
    symbol = matmul.signature.symbol
    entry, alive = library._entries[symbol], []

    def meanwhile(*given: int) -> Any:
        (kept,) = library._kept.values()
        watched = [weakref.ref(packed) for packed in kept.packed]
        del kept
        library.forget()
        gc.collect()
        alive.append([packed() is not None for packed in watched])
        return entry(*given)

    monkeypatch.setitem(library._entries, symbol, meanwhile)
    np.testing.assert_allclose(matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)
    assert alive and all(alive[0])


def test_strided_and_misaligned_constants(matmul: Any) -> None:
    a, b = arrays()
    strided = np.asfortranarray(b)
    raw = np.empty(b.nbytes + 4, np.uint8)[4:].view(np.float32).reshape(b.shape)
    raw[...] = b
    for given in (strided, raw, np.repeat(b, 2, axis=1)[:, ::2]):
        np.testing.assert_allclose(matmul(a, given), a @ b, rtol=1e-4, atol=1e-4)


def test_the_c_function_takes_the_packed_buffer(
    exported: Path, kernels: list[ExportKernel]
) -> None:
    library = Library(exported / "lib" / "libkit.so")
    symbol, prepack = str(kernels[0].symbol), kernels[0].prepack
    assert prepack is not None and set(library.signatures) == {kernel.symbol for kernel in kernels}
    a, b = arrays()
    packed = aligned_empty(prepack.packed[0].shape, "float32")
    out = aligned_empty((20, 48), "float32")
    aligned = [aligned_empty(array.shape, "float32") for array in (a, b)]
    for target, source in zip(aligned, (a, b), strict=True):
        target[...] = source
    raw = library._library
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (*aligned, packed, out)]
    assert raw[f"{symbol}_pack"](pointers[1], pointers[2]) == 0
    assert raw[symbol](pointers[0], pointers[2], pointers[3]) == 0
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)
    assert raw[f"{symbol}_pack"](None, pointers[2]) == 1
    assert library.time(symbol, [*aligned, out], 2, 3)
    with pytest.raises(LibraryError, match="has no function"):
        library.function(f"{symbol}_pack")


def run(command: list[str | Path], cwd: Path) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(("compiler", "name"), [("cc", "example.c"), ("c++", "example.cpp")])
def test_the_examples_pack_and_call(
    exported: Path, tmp_path: Path, compiler: str, name: str
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    flags: list[str | Path] = ["-Wall", "-Wextra", "-Werror", f"-I{exported / 'include'}"]
    libraries: list[str | Path] = [
        exported / "lib" / "libkit.a",
        "-lm",
        "-lpthread",
        "-o",
        "example",
    ]
    run([compiler, *flags, exported / "examples" / name, *libraries], tmp_path)
    assert run([tmp_path / "example"], tmp_path).count("32 elements checked") == 3


def test_the_python_package_and_verify(exported: Path, tmp_path: Path) -> None:
    assert (
        run([sys.executable, exported / "examples" / "example.py"], tmp_path).count("32 elements")
        == 3
    )
    verified = verify_export(exported, Settings())
    assert all(isinstance(verdict.result, Retimed) for verdict in verified.functions), verified


def test_the_manifest_describes_the_pack_function(
    exported: Path, kernels: list[ExportKernel]
) -> None:
    first = json.loads((exported / "manifest.json").read_text())["functions"][0]
    assert [argument["name"] for argument in first["arguments"]] == ["A", "B", "C"]
    (packed,) = first["prepack"]["packed"]
    assert first["prepack"]["symbol"] == f"{kernels[0].symbol}_pack" and first["prepack"][
        "constants"
    ] == ["B"]
    assert first["prepack"]["called_with"] == ["A", packed["name"], "C"]


def test_names_of_pack_functions_are_taken(kernels: list[ExportKernel], tmp_path: Path) -> None:
    symbol = kernels[0].symbol
    meeting = replace(kernels[1], symbol=f"{symbol}_pack", prepack=None)
    with pytest.raises(ExportRefused, match="used twice"):
        export_library([kernels[0], meeting], tmp_path / "kit", "kit")

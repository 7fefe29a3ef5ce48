"""One function for a range of rows, end to end: every number of rows, from Python, C
and C++, and every refusal."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.targets import host_target
from tuner.app.export.manifest_workloads import portfolio_of
from tuner.app.export.portfolio import portfolio_key, rows_checked
from tuner.app.export.verdicts import Retimed, VerificationError
from tuner.app.export.verify import verify_export
from tuner.errors import UsageError
from tuner.export.errors import ManifestError
from tuner.export.examples import expected_outputs
from tuner.export.kernel import ExportKernel, TargetName, arguments_of
from tuner.export.library import export_library
from tuner.export.portfolio import plan_rows
from tuner.lowering.compiler import compile_kernel
from tuner.runtime.loader import DTypeError, Library, LibraryError, TunedFunction, aligned_empty
from tuner.runtime.portfolio import Portfolio
from tuner.runtime.signature import ShapeError
from tuner.settings import Settings
from tuner.spaces.by_target import space_of
from tuner.workload.rows import member, rows_of
from tuner.workload.spec import parse_portfolio

HIGH = 40
SPEC = f"matmul:M=2..{HIGH},N=32,K=16"
Array = np.ndarray[Any, np.dtype[Any]]


def portfolio(spec: str, extents: tuple[int, ...], threads: int = 1) -> ExportKernel:
    """Kernels of some schedule for these numbers of rows, as one function; a kernel
    costs 5 and 1 for each row."""
    family, machine = parse_portfolio(spec), host_target()
    rows, kernels = rows_of(family), []
    for extent in extents:
        workload = member(family, extent)
        space = space_of(workload, machine, threads).space
        config = space.config(space.sample(np.random.default_rng(extent), 1)[0])
        made = compile_kernel(
            workload=workload, target=machine, threads=threads, config=config, symbol="tuned_kernel"
        )
        kernel = ExportKernel(
            workload_key=workload.key,
            op=workload.op,
            params=workload.params,
            arguments=arguments_of(workload.expression),
            target=TargetName(key=machine.key, kind="cpu", name=machine.name),
            isa=machine.isa,
            threads=threads,
            object_code=made.object_code,
            tvm_symbol="__tvm_ffi_tuned_kernel",
            median_s=1e-6,
            ci95_s=(1e-6, 1e-6),
            verified=True,
            max_rel_error=0.0,
        )
        kernels.append(kernel)
    plan = plan_rows(
        [(extent, 5.0 + extent) for extent in extents], rows.high, lambda count: 0.5 * count
    )
    greatest = member(family, rows.high)
    whole = replace(
        kernels[-1],
        symbol="rows_apart",
        workload_key=portfolio_key(family),
        params={**greatest.params, rows.name: f"{rows.low}..{rows.high}"},
        arguments=arguments_of(greatest.expression),
        portfolio=Portfolio(rows=rows, extents=extents, kernels=tuple(kernels), plan=plan.first),
    )
    return replace(whole, expected=expected_outputs(greatest.expression, whole))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("portfolio") / "kit"
    export_library([portfolio(SPEC, (3, 8, 20))], directory, "kit")
    return directory


@pytest.fixture
def library(exported: Path) -> Library:
    return Library(exported / "lib" / "libkit.so")


@pytest.fixture
def function(library: Library) -> TunedFunction:
    return library.function("rows_apart")


def arrays(count: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((count, 16)).astype(np.float32), rng.standard_normal(
        (16, 32)
    ).astype(np.float32)


@pytest.mark.parametrize("count", range(2, HIGH + 1))
def test_every_number_of_rows(function: TunedFunction, count: int) -> None:
    a, b = arrays(count, count)
    kept = a.copy()
    out = aligned_empty((count + 1, 32), "float32")
    out.fill(7)
    function(a, b, out=out[:count])
    np.testing.assert_allclose(out[:count], a @ b, rtol=1e-4, atol=1e-5)
    assert (out[count] == 7).all() and (a == kept).all()
    np.testing.assert_array_equal(function(a, b), out[:count])


def test_rows_of_what_is_nothing_but_dlpack(function: TunedFunction) -> None:
    class Bare:
        def __init__(self, array: Array) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    a, b = arrays(5)
    np.testing.assert_array_equal(function(Bare(a), Bare(b)), function(a, b))


def test_rows_that_do_not_begin_where_aligned_loads_may(tmp_path: Path) -> None:
    """Of 28 and 40 bytes: blocks after the first work on copies, and nothing beside the
    rows is touched."""
    export_library([portfolio("matmul:M=1..23,N=10,K=7", (2, 5, 8))], tmp_path / "kit", "kit")
    function = Library(tmp_path / "kit" / "lib" / "libkit.so").function("rows_apart")
    rng = np.random.default_rng(0)
    for count in range(1, 24):
        a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((count, 7), (7, 10)))
        out = aligned_empty((count + 1, 10), "float32")
        out.fill(7)
        function(a, b, out=out[:count])
        np.testing.assert_allclose(out[:count], a @ b, rtol=1e-4, atol=1e-5)
        assert (out[count] == 7).all()


def test_batches_and_several_threads(tmp_path: Path) -> None:
    """Every ranged argument moves with its rows, also in a kernel of two threads; calls
    from eight threads at once."""
    export_library(
        [portfolio("batch_matmul:B=1..9,M=4,N=16,K=8", (2, 3), threads=2)], tmp_path / "kit", "kit"
    )
    function = Library(tmp_path / "kit" / "lib" / "libkit.so").function("rows_apart")
    rng = np.random.default_rng(0)

    def check(count: int) -> None:
        a, b = (
            rng.standard_normal(shape).astype(np.float32)
            for shape in ((count, 4, 8), (count, 8, 16))
        )
        np.testing.assert_allclose(function(a, b), a @ b, rtol=1e-4, atol=1e-5)

    for count in range(1, 10):
        check(count)

    def many(seed: int) -> None:
        local = np.random.default_rng(seed)
        for count in range(1, 10):
            a, b = (
                local.standard_normal(shape).astype(np.float32)
                for shape in ((count, 4, 8), (count, 8, 16))
            )
            np.testing.assert_allclose(function(a, b), a @ b, rtol=1e-4, atol=1e-5)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(many, range(8)))


def test_python_refuses_other_shapes(function: TunedFunction) -> None:
    for count in (0, 1, HIGH + 1):
        with pytest.raises(ShapeError, match=f"M is {count}, outside its range 2 to {HIGH}"):
            function(*arrays(count))
    a, b = arrays(5)
    with pytest.raises(ShapeError, match=r"C has shape \(6, 32\), expected \(5, 32\)"):
        function(a, b, out=np.empty((6, 32), np.float32))
    with pytest.raises(ShapeError):
        function(a[0], b)
    with pytest.raises(DTypeError):
        function([1.0], b)


def test_c_refuses_with_a_code_and_writes_nothing(library: Library) -> None:
    entry: Callable[..., int] = library._entries["rows_apart"]
    a, b, c = (aligned_empty(shape, "float32") for shape in ((HIGH, 16), (16, 32), (HIGH, 32)))
    for array in (a, b):
        array.fill(1)
    c.fill(7)
    pointers = [array.ctypes.data for array in (a, b, c)]
    for rows, text in (
        (1, "M is 1"),
        (0, "M is 0"),
        (-(2**62), "outside"),
        (2**62, "outside"),
        (HIGH + 1, "2 to 40"),
    ):
        assert entry(*pointers, rows) == 4 and text in library.last_error()
    assert entry(None, *pointers[1:], 5) == 1
    assert entry(pointers[0], pointers[1] + 4, pointers[2], 5) == 2
    assert entry(pointers[0], pointers[1], pointers[0] + 4 * 64, 5) == 3
    assert (c == 7).all()
    assert entry(pointers[0], pointers[1], pointers[2], 5) == 0
    assert (c[:5] == 16).all() and (c[5:] == 7).all()
    # What is beyond the rows of this call may be the output's own.
    both = aligned_empty((HIGH, 32), "float32")
    both.fill(1)
    assert entry(both.ctypes.data, pointers[1], both[5:].ctypes.data, 10) == 0


def test_timing(library: Library) -> None:
    a, b = arrays(9)
    given = [aligned_empty(array.shape, "float32") for array in (a, b)]
    assert min(library.time("rows_apart", [*given, aligned_empty((9, 32), "float32")], 3, 4)) > 0
    time = library._time
    assert (
        time(
            b"rows_apart",
            (ctypes.c_void_p * 4)(
                *(array.ctypes.data for array in given), given[0].ctypes.data, 999
            ),
            1,
            1,
            0,
        )
        != 0
    )


@pytest.mark.parametrize(("compiler", "name"), [("cc", "example.c"), ("c++", "example.cpp")])
def test_the_examples(exported: Path, tmp_path: Path, compiler: str, name: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    command = [
        compiler,
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{exported / 'include'}",
        str(exported / "examples" / name),
    ]
    command += [str(exported / "lib" / "libkit.a"), "-lm", "-lpthread", "-o", "example"]
    for step in (command, ["./example"]):
        done = subprocess.run(
            step, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
    assert "32 elements checked" in done.stdout


def test_a_c_program_sees_a_wrong_extent_and_a_missing_feature(
    exported: Path, tmp_path: Path
) -> None:
    (tmp_path / "program.c").write_text(
        '#include <stdio.h>\n#include "kit.h"\n'
        "int main(void) {\n"
        "  float *a = kit_alloc(4 * 16 * 40), *b = kit_alloc(4 * 16 * 32), *c = kit_alloc(4 * "
        "32 * 40);\n"
        '  for (int rows = 40; rows < 42; ++rows) printf("%d %s\\n", rows_apart(a, b, c, rows), '
        "kit_last_error());\n"
        "  return 0;\n}\n"
    )
    command = [
        "cc",
        f"-I{exported / 'include'}",
        "program.c",
        str(exported / "lib" / "libkit.a"),
        "-lm",
        "-lpthread",
    ]
    subprocess.run([*command, "-o", "program"], cwd=tmp_path, check=True, timeout=120)
    said = subprocess.run(
        ["./program"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert said == "0 \n4 rows_apart: M is 41, outside its range 2 to 40\n"
    (lacking, *_) = host_target().isa
    environment = {"TUNED_CPU_WITHOUT": lacking}
    said = subprocess.run(
        ["./program"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert (
        said.startswith("5 rows_apart_")
        and f"this CPU lacks {lacking}, for which the kernel was compiled" in said
    )


def test_cpp_takes_the_extent_from_the_views(exported: Path, tmp_path: Path) -> None:
    if shutil.which("c++") is None:
        pytest.skip("no c++ here")
    (tmp_path / "program.cpp").write_text(
        '#include "kit.hpp"\n'
        "int main() {\n"
        "  kit::buffer<float> a({7, 16}), b({16, 32}), c({7, 32}), d({6, 32}), e({50, 16}), "
        "f({50, 32});\n"
        "  for (int i = 0; i < 7 * 16; ++i) a[i] = 1;\n"
        "  for (int i = 0; i < 16 * 32; ++i) b[i] = 2;\n"
        "  kit::rows_apart(a, b, c);\n"
        "  for (int i = 0; i < 7 * 32; ++i) if (c[i] != 32) return 1;\n"
        "  try { kit::rows_apart(a, b, d); return 2; } catch (const kit::shape_error &) {}\n"
        "  try { kit::rows_apart(e, b, f); return 3; } catch (const kit::error &error) {\n"
        "    if (error.code() != KIT_ERROR_EXTENT) return 4;\n"
        "  }\n"
        "  return 0;\n}\n"
    )
    command = ["c++", "-Wall", "-Wextra", "-Werror", f"-I{exported / 'include'}", "program.cpp"]
    command += [str(exported / "lib" / "libkit.a"), "-lm", "-lpthread", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    assert subprocess.run(["./program"], cwd=tmp_path, check=False, timeout=60).returncode == 0


def test_verify_tries_members_of_the_family(exported: Path) -> None:
    (verdict,) = verify_export(exported, Settings(), seed=3).functions
    assert isinstance(verdict.result, Retimed) and verdict.spec.startswith(
        "matmul:M=2..40,N=32,K=16"
    )


def test_the_manifest_says_what_it_is(exported: Path, tmp_path: Path) -> None:
    (function,) = json.loads((exported / "manifest.json").read_text())["functions"]
    assert function["ranges"] == {"M": {"least": 2, "greatest": HIGH, "arguments": ["A", "C"]}}
    assert [kernel["extent"] for kernel in function["kernels"]] == [3, 8, 20]
    assert function["workload"]["params"]["M"] == f"2..{HIGH}"
    for ranges in (
        {},
        {"M": 3},
        {"M": {"least": 2, "greatest": 41}},
        {"K": {"least": 2, "greatest": 40}},
        [1],
    ):
        with pytest.raises((ManifestError, UsageError)):
            portfolio_of({**function, "ranges": ranges})
    copy = Path(shutil.copytree(exported, tmp_path / "copy"))
    document = json.loads((copy / "manifest.json").read_text())
    document["functions"][0]["ranges"] = {"M": {"least": "2", "greatest": 10**30}}
    (copy / "manifest.json").write_text(json.dumps(document))
    (verdict,) = verify_export(copy, Settings()).functions
    assert isinstance(verdict.result, VerificationError)


def test_ranges_one_function_cannot_serve() -> None:
    with pytest.raises(UsageError, match="multiples of 64 bytes"):
        rows_checked(parse_portfolio("matmul:M=1..8,N=10,K=16"))
    with pytest.raises(UsageError, match="too long a range"):
        rows_checked(parse_portfolio("elementwise:M=1..100000,N=16,act=relu"))


def test_a_missing_library_function_is_named(library: Library) -> None:
    with pytest.raises(LibraryError, match="has no function"):
        library.function("rows_apart_8")

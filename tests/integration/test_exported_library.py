"""Kernels compiled by the real compiler, exported, and called from C, C++, CMake,
pkg-config and Python."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te

from tuner.export.examples import example_inputs
from tuner.export.kernel import Argument, ExportKernel, TargetName
from tuner.export.library import export_library
from tuner.export.manifest import verify_hashes
from tuner.runtime.loader import DTypeError, Library, LibraryError, aligned_empty
from tuner.runtime.signature import ShapeError

Reference = Callable[..., np.ndarray[Any, np.dtype[Any]]]
SIZE = 48


def compiled(name: str, tensors: Sequence[Any], *, parallel: bool = False) -> bytes:
    """Object code of a te program; with `parallel` the outer loop of each stage is."""
    function = te.create_prim_func(list(tensors)).with_attr("global_symbol", name)
    schedule = tvm.s_tir.Schedule(tvm.IRModule({name: function}))
    if parallel:
        for block in schedule.get_child_blocks(schedule.get_sblock("root", func_name=name)):
            schedule.parallel(schedule.get_loops(block)[0])
    library = tvm.tirx.build(schedule.mod, target=tvm.target.Target({"kind": "llvm"}))
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / f"{name}.o"
        library.write_to_file(str(path))
        return path.read_bytes()


def exportable(
    symbol: str, tensors: Sequence[Any], reference: Reference, *, parallel: bool = False
) -> ExportKernel:
    """A kernel of float inputs and one output, with the right answers of the examples' inputs."""
    arguments = tuple(
        Argument(
            name=tensor.op.name,
            dtype=str(tensor.dtype),  # type: ignore[arg-type]  # the compiler's spelling of a dtype is ours
            shape=tuple(int(extent) for extent in tensor.shape),
            role="out" if index == len(tensors) - 1 else "in",
        )
        for index, tensor in enumerate(tensors)
    )
    kernel = ExportKernel(
        symbol=symbol,
        workload_key="0" * 64,
        op="matmul",
        params={"M": SIZE},
        arguments=arguments,
        target=TargetName(key="1" * 64, kind="cpu", name="the machine of the tests"),
        isa=(),
        threads=2 if parallel else 1,
        object_code=compiled("main", tensors, parallel=parallel),
        tvm_symbol="__tvm_ffi_main",
        median_s=1e-5,
        ci95_s=(1e-5, 1e-5),
        verified=True,
        max_rel_error=1e-7,
    )
    inputs = [array.astype(np.float64) for array in example_inputs(kernel)]
    return replace(kernel, expected=(reference(*inputs),))


def kernels() -> list[ExportKernel]:
    a, b = (te.placeholder((SIZE, SIZE), name=name) for name in "AB")
    k = te.reduce_axis((0, SIZE), name="k")
    product = te.compute((SIZE, SIZE), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    two_stage = te.compute(
        (SIZE, SIZE), lambda i, j: te.exp(product[i, j] / 64.0) + product[j, i], name="D"
    )
    h = te.placeholder((33,), name="H", dtype="float16")
    half = te.compute((33,), lambda i: h[i] * tvm.tirx.const(2, "float16"), name="G")
    x = te.placeholder((33,), name="X", dtype="bfloat16")
    brain = te.compute((33,), lambda i: (x[i].astype("float32") * 2.0).astype("bfloat16"), name="Y")
    n = te.placeholder((7, 5), name="N", dtype="int8")
    r = te.reduce_axis((0, 5), name="r")
    total = te.compute((7,), lambda i: te.sum(n[i, r].astype("int32"), axis=r), name="S")
    return [
        exportable("product", [a, b, product], lambda a, b: a @ b),
        exportable("product_parallel", [a, b, product], lambda a, b: a @ b, parallel=True),
        exportable("two_stage", [a, b, two_stage], lambda a, b: np.exp(a @ b / 64) + (a @ b).T),
        exportable(
            "two_stage_parallel",
            [a, b, two_stage],
            lambda a, b: np.exp(a @ b / 64) + (a @ b).T,
            parallel=True,
        ),
        exportable("half_f16", [h, half], lambda h: 2 * h),
        exportable("brain_bf16", [x, brain], lambda x: 2 * x),
        exportable("total_i8", [n, total], lambda n: n.sum(axis=1)),
    ]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export, moved after it was written: nothing in it may know where it was."""
    folder = tmp_path_factory.mktemp("export")
    export_library(kernels(), folder / "first" / "kit", "kit")
    shutil.move(folder / "first" / "kit", folder / "kit")
    return folder / "kit"


def run(
    command: Sequence[str | Path], cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    # Only what a plain machine has: neither this project nor its packages on any path.
    clean = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(cwd), **environment}
    done = subprocess.run(
        command, cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def test_it_needs_libc_alone(exported: Path, tmp_path: Path) -> None:
    lines = run(["ldd", exported / "lib" / "libkit.so"], tmp_path).stdout.split("\n")
    names = {Path(line.split()[0]).name.split(".so")[0] for line in lines if line.strip()}
    assert names <= {
        "linux-vdso",
        "linux-gate",
        "libc",
        "libm",
        "libpthread",
        "ld-linux-x86-64",
        "ld-linux-aarch64",
    }
    verify_hashes(exported)


def test_a_c_program_by_pkg_config(exported: Path, tmp_path: Path) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config here")
    flags = run(
        ["pkg-config", "--cflags", "--libs", "kit"],
        tmp_path,
        PKG_CONFIG_PATH=str(exported / "lib" / "pkgconfig"),
    )
    example = exported / "examples" / "example.c"
    run(
        [
            "cc",
            "-Wall",
            "-Wextra",
            "-Werror",
            example,
            *flags.stdout.split(),
            "-lm",
            "-o",
            "example",
        ],
        tmp_path,
    )
    done = run([tmp_path / "example"], tmp_path, LD_LIBRARY_PATH=str(exported / "lib"))
    assert done.stdout.count("32 elements checked") == 6
    assert "7 elements checked" in done.stdout


def test_a_static_c_program(exported: Path, tmp_path: Path) -> None:
    archive = exported / "lib" / "libkit.a"
    run(
        [
            "cc",
            exported / "examples" / "example.c",
            f"-I{exported / 'include'}",
            archive,
            "-lm",
            "-lpthread",
            "-o",
            "example",
        ],
        tmp_path,
    )
    assert run([tmp_path / "example"], tmp_path).stdout.count("elements checked") == 7


def test_a_c_program_sees_each_error(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "errors.c").write_text(
        """
        #include <stdio.h>
        #include "kit.h"
        int main(void) {
          float *a = kit_alloc(4 * 48 * 48), *b = kit_alloc(4 * 48 * 48), *c = kit_alloc(4 * 48 * 48);
          printf("%d %s|\\n", KIT_OK, kit_last_error());
          printf("%d %s\\n", product(a, NULL, c), kit_last_error());
          printf("%d %s\\n", product(a, b + 1, c), kit_last_error());
          printf("%d %s\\n", product(a, b, b), kit_last_error());
          printf("%d %s\\n", kit_set_num_threads(1000), kit_last_error());
          printf("%d\\n", kit_alloc((size_t)1 << 62) == NULL);
          kit_free(a); kit_free(b); kit_free(c);
          return 0;
        }
        """  # noqa: E501
    )
    run(
        [
            "cc",
            "errors.c",
            f"-I{exported / 'include'}",
            f"-L{exported / 'lib'}",
            "-lkit",
            "-o",
            "errors",
        ],
        tmp_path,
    )
    lines = run(
        [tmp_path / "errors"], tmp_path, LD_LIBRARY_PATH=str(exported / "lib")
    ).stdout.splitlines()
    for line, start in zip(
        lines,
        [
            "0 |",
            "1 product: argument 1 (B)",
            "2 product: argument 1 (B)",
            "3 product: output C",
            "4 1000",
            "1",
        ],
        strict=True,
    ):
        assert line.startswith(start)


def test_a_cpp_program_checks_shapes(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "shapes.cpp").write_text(
        """
        #include <iostream>
        #include "kit.hpp"
        int main() {
          kit::buffer<float> a({48, 48}), b({48, 48}), c({48, 48}), wrong({48, 47});
          try { kit::product(a, wrong, c); } catch (const kit::shape_error &e) { std::cout << e.what() << "\\n"; }
          try { kit::product(a, b, b); } catch (const kit::error &e) { std::cout << e.code() << "\\n"; }
          try { kit::tensor<float>(a.data(), 3, {48, 48}); } catch (const kit::shape_error &) { std::cout << "span\\n"; }
        }
        """  # noqa: E501
    )
    run(
        [
            "c++",
            "-std=c++17",
            "shapes.cpp",
            f"-I{exported / 'include'}",
            f"-L{exported / 'lib'}",
            "-lkit",
            "-o",
            "shapes",
        ],
        tmp_path,
    )
    done = run([tmp_path / "shapes"], tmp_path, LD_LIBRARY_PATH=str(exported / "lib"))
    assert done.stdout == "product: in_B has shape (48, 47), expected (48, 48)\n3\nspan\n"


def test_a_cpp_program_of_another_dtype_does_not_compile(exported: Path, tmp_path: Path) -> None:
    text = (
        '#include "kit.hpp"\nint main() { kit::buffer<%s> a({48, 48}), b({48, 48}), c({48, '
        "48}); kit::product(a, b, c); }\n"
    )
    for dtype, right in (("float", True), ("double", False), ("std::int32_t", False)):
        (tmp_path / "typed.cpp").write_text(text % dtype)
        command = ["c++", "-std=c++17", "-fsyntax-only", f"-I{exported / 'include'}", "typed.cpp"]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
        )
        assert (done.returncode == 0) == right, done.stderr


def test_a_project_of_ones_own_by_cmake_and_a_cpp_program_by_pkg_config(
    exported: Path, tmp_path: Path
) -> None:
    """What a stranger writes: a project elsewhere that finds the package, in C and C++,
    shared and static."""
    (tmp_path / "main.c").write_text(
        """
        #include "kit.h"
        int main(void) {
          float *a = kit_alloc(4 * 48 * 48), *b = kit_alloc(4 * 48 * 48), *c = kit_alloc(4 * 48 * 48);
          for (int i = 0; i < 48 * 48; ++i) a[i] = 1, b[i] = 2, c[i] = 0;
          if (product_parallel(a, b, c) != KIT_OK) return 1;
          for (int i = 0; i < 48 * 48; ++i) if (c[i] != 96) return 2;
          return 0;
        }
        """  # noqa: E501
    )
    (tmp_path / "main.cpp").write_text(
        """
        #include "kit.hpp"
        int main() {
          kit::buffer<float> a({48, 48}), b({48, 48}), c({48, 48});
          for (int i = 0; i < a.size(); ++i) a[i] = 1, b[i] = 2;
          kit::set_num_threads(1);
          kit::product(a, b, c);
          return c[48 * 48 - 1] == 96 ? 0 : 1;
        }
        """
    )
    if shutil.which("cmake") is not None:
        (tmp_path / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.16)\nproject(mine C "
            "CXX)\nset(CMAKE_CXX_STANDARD 17)\n"
            "find_package(kit CONFIG REQUIRED)\nenable_testing()\n"
            "foreach(kind kit static)\n"
            "  add_executable(c_${kind} main.c)\n  target_link_libraries(c_${kind} PRIVATE "
            "kit::${kind})\n"
            "  add_executable(cpp_${kind} main.cpp)\n  target_link_libraries(cpp_${kind} "
            "PRIVATE kit::${kind})\n"
            "  add_test(NAME c_${kind} COMMAND c_${kind})\n  add_test(NAME cpp_${kind} COMMAND "
            "cpp_${kind})\nendforeach()\n"
        )
        run(["cmake", "-S", ".", "-B", "build", f"-Dkit_DIR={exported / 'cmake'}"], tmp_path)
        run(["cmake", "--build", "build"], tmp_path)
        assert "100% tests passed" in run(["ctest", "--test-dir", "build"], tmp_path).stdout
    if shutil.which("pkg-config") is not None:
        flags = run(
            ["pkg-config", "--cflags", "--libs", "kit"],
            tmp_path,
            PKG_CONFIG_PATH=str(exported / "lib" / "pkgconfig"),
        )
        run(
            ["c++", "-std=c++17", "main.cpp", *flags.stdout.split(), "-o", "by_pkg_config"],
            tmp_path,
        )
        run([tmp_path / "by_pkg_config"], tmp_path, LD_LIBRARY_PATH=str(exported / "lib"))


def test_cmake_builds_and_runs_the_examples(exported: Path, tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("no cmake here")
    run(["cmake", "-S", exported / "examples", "-B", "build"], tmp_path)
    run(["cmake", "--build", "build"], tmp_path)
    assert "100% tests passed" in run(["ctest", "--test-dir", "build"], tmp_path).stdout


def test_a_python_program_without_the_compiler(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "blocked.py").write_text(
        "import sys, runpy\n"
        "sys.modules['tvm'] = sys.modules['tuner'] = None\n"
        f"runpy.run_path({str(exported / 'examples' / 'example.py')!r}, run_name='__main__')\n"
    )
    done = run([sys.executable, "blocked.py"], tmp_path)
    assert done.stdout.count("elements of") == 7


def test_the_package_checks_and_copies(exported: Path, tmp_path: Path) -> None:
    code = """
        import numpy as np, kit
        a, b = np.random.rand(48, 48).astype("f4"), np.random.rand(48, 48).astype("f4")
        assert abs(kit.product(a.T, b[::-1]) - a.T @ b[::-1]).max() < 1e-4
        assert set(kit.__all__) >= {"product", "two_stage", "half_f16"}
        for wrong, error in ((a[:3], kit.ShapeError), (a.astype("f8"), kit.DTypeError), ([1.0], kit.DTypeError)):
            try:
                kit.product(a, wrong)
            except error as caught:
                print(caught)
        """  # noqa: E501
    (tmp_path / "package.py").write_text("\n".join(line[8:] for line in code.splitlines()))
    done = run([sys.executable, "package.py"], tmp_path, PYTHONPATH=str(exported))
    assert done.stdout.splitlines() == [
        "product: B has shape (3, 48), expected (48, 48)",
        "product: B has dtype float64, expected float32 (float32)",
        "product: B is a list, not an array; use numpy.asarray or DLPack",
    ]


def test_eight_threads_at_once(exported: Path) -> None:
    library = Library(exported / "lib" / "libkit.so")
    wrong: list[str] = []

    def hammer(seed: int) -> None:
        random = np.random.default_rng(seed)
        a, b, c = (aligned_empty((SIZE, SIZE), "float32") for _ in range(3))
        for turn in range(60):
            a[:], b[:] = random.standard_normal((SIZE, SIZE)), random.standard_normal((SIZE, SIZE))
            symbol = ("product", "product_parallel", "two_stage_parallel")[(turn + seed) % 3]
            library.call(symbol, [a, b, c])
            right = a @ b if symbol.startswith("product") else np.exp(a @ b / 64) + (a @ b).T
            if abs(c - right).max() > 1e-3:
                wrong.append(f"{symbol} in thread {seed}")

    threads = [threading.Thread(target=hammer, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_errors_from_python(exported: Path) -> None:
    library = Library(exported / "lib" / "libkit.so")
    square = aligned_empty((SIZE, SIZE), "float32")
    square[:] = 1
    with pytest.raises(LibraryError, match="overlaps") as caught:
        library.call("product", [square, square, square])
    assert caught.value.kind == "overlap"
    with pytest.raises(ShapeError):
        library.function("product")(square[:5], square)
    with pytest.raises(DTypeError):
        library.function("product")(square.astype(np.int32), square)


def test_call_overhead_is_small(exported: Path) -> None:
    """A kernel of 33 elements and all a call adds to it: tens of nanoseconds on an idle
    core; the bound allows a busy one."""
    library = Library(exported / "lib" / "libkit.so")
    given, result = aligned_empty((33,), "float16"), aligned_empty((33,), "float16")
    given[:] = 1
    assert min(library.time("half_f16", [given, result], number=10_000, repeat=9)) < 2e-6


def test_a_wheel_carries_the_library(exported: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(exported, tmp_path / "kit"))
    pytest.importorskip("setuptools", minversion="70.1")
    run(
        [sys.executable, "setup.py", "-q", "bdist_wheel", "-d", "dist"],
        copy,
        PYTHONWARNINGS="ignore",
    )
    (wheel,) = (copy / "dist").glob("*.whl")
    assert wheel.name.startswith("kit-1-py3-none-")
    assert not wheel.name.endswith("-any.whl")
    site = tmp_path / "site"
    shutil.unpack_archive(wheel, site, format="zip")
    done = run(
        [sys.executable, "-c", "import kit; print(sorted(kit.library.signatures))"],
        tmp_path,
        PYTHONPATH=str(site),
    )
    assert "two_stage" in done.stdout
    assert json.loads((exported / "manifest.json").read_text())["name"] == "kit"

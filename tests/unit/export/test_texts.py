"""Headers and examples: documented signatures, and names and texts that cannot break
out of their place."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tuner.export.examples import (
    example_files,
    example_inputs,
    expected_outputs,
    sampled,
    tolerance_of,
)
from tuner.export.header import c_header, c_names
from tuner.export.kernel import Argument, ExportKernel
from tuner.export.library import export_library
from tuner.export.manifest import function_entry
from tuner.export.naming import named
from tuner.runtime.toolchain import Toolchain
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.spec import parse_spec

Make = Callable[..., ExportKernel]


def test_the_header_documents_each_argument(kernel: Make) -> None:
    text = c_header("kit", named([kernel(isa=("avx2", "fma"))], "kit"))
    assert "int elementwise_n1024_double(const float *in_X, float *out_Y);" in text
    assert "in_X: float32, 1024, 4096 bytes" in text
    assert "elementwise:N=1024,act=double,dtype=float32" in text
    assert "Needs CPU features: avx2, fma." in text
    assert "KIT_ERROR_ALIGNMENT = 2" in text


def test_hostile_texts_stay_inside_their_comment(
    tmp_path: Path, kernel: Make, toolchain: Toolchain
) -> None:
    notation = 'kernel evil(A: f32[4]) */ #error out\n"""\n\\ ??/ /* \u2028 -> (C: f32[4])'
    arguments = (
        Argument(name="int */ x", dtype="float32", shape=(1024,), role="in"),
        Argument(name="int */ x\n", dtype="float32", shape=(1024,), role="out"),
    )
    hostile = kernel(op=None, params={}, notation=notation, arguments=arguments)
    export_library([hostile], tmp_path / "out", "kit", toolchain=toolchain)
    for language, example in (("c", "example.c"), ("c++", "example.cpp")):
        command = [
            "cc",
            "-x",
            language,
            "-fsyntax-only",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-I../include",
            example,
        ]
        done = subprocess.run(
            command,
            cwd=tmp_path / "out" / "examples",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
    compile((tmp_path / "out" / "kit" / "__init__.py").read_text(), "__init__.py", "exec")


def test_parameter_names_are_distinct(kernel: Make) -> None:
    arguments = tuple(
        Argument(name=name, dtype="float32", shape=(4,), role="in")
        for name in ("a.b", "a_b", "é", "ü")
    )
    names = c_names(arguments)
    assert len(set(names)) == 4
    assert all(name.isascii() and name.isidentifier() for name in names)


@pytest.mark.parametrize("field", ["fixed", "example"])
def test_stated_values_stand_in_for_the_formula(kernel: Make, field: str) -> None:
    """In the examples, and in the manifest, whose reader refuses other numbers of them."""
    ids = Argument(name="ids", dtype="int64", shape=(3,), role="in", **{field: (16000, 7, -2)})  # type: ignore[arg-type]  # one of two fields
    out = Argument(name="y", dtype="float32", shape=(3,), role="out")
    made = kernel(arguments=(ids, out), symbol="f")
    np.testing.assert_array_equal(example_inputs(made)[0], [16000, 7, -2])
    files = example_files("kit", [made])
    bytes_of = ", ".join(map(str, np.array([16000, 7, -2]).tobytes()))
    assert f"f_stated_0[] = {{{bytes_of}}};" in files["examples/example.c"]
    assert '"stated": {' in files["examples/expected.json"]
    assert function_entry(made)["arguments"][0][field] == [16000, 7, -2]
    header = c_header("kit", [made])
    assert ("must be 16000 7 -2" in header) == (field == "fixed")


@pytest.mark.parametrize("dtype", list(DTYPE_BYTES))
def test_example_inputs_are_exact_in_their_dtype(kernel: Make, dtype: str) -> None:
    argument = Argument(name="X", dtype=dtype, shape=(64, 32), role="in")  # type: ignore[arg-type]  # every dtype by its name
    (values,) = example_inputs(kernel(arguments=(argument,)))
    assert values.shape == (64, 32)
    assert len(np.unique(values)) > 1
    if dtype.startswith(("float", "bfloat")):
        assert ((values.astype(np.float64) * 128) % 1 == 0).all()
        assert np.abs(values).max() <= 1


def test_samples_spread_over_the_output_and_fit_its_shape(kernel: Make) -> None:
    (samples,) = sampled(kernel())
    places = [place for place, _ in samples]
    assert (places[0], places[-1], len(places)) == (0, 1023, 32)
    with pytest.raises(ValueError, match="expected Y has shape"):
        sampled(kernel(expected=(np.zeros(3),)))


@pytest.mark.parametrize(
    "spec", ["transpose:M=16384,N=16384", "elementwise:M=16384,N=16384,act=relu"]
)
def test_right_outputs_are_of_what_fits_into_memory(kernel: Make, spec: str) -> None:
    """Few operations move many bytes; nothing of that size is made to find out."""
    assert expected_outputs(parse_spec(spec).expression, kernel()) is None


def test_tolerances_follow_the_outputs_dtype(kernel: Make) -> None:
    rounding = {
        "float32": 2**-24,
        "float16": 2**-11,
        "bfloat16": 2**-8,
    }  # largest relative error of one rounding
    for dtype, unit in rounding.items():
        output = Argument(name="Y", dtype=dtype, shape=(4,), role="out")  # type: ignore[arg-type]  # a dtype by its name
        assert tolerance_of(kernel(), output) >= 4 * unit
    assert tolerance_of(kernel(), Argument(name="Y", dtype="int32", shape=(4,), role="out")) == 0
    assert (
        tolerance_of(
            kernel(tolerance=0.5), Argument(name="Y", dtype="int32", shape=(4,), role="out")
        )
        == 0.5
    )

"""Programs whose calls of NumPy are answered by functions of a library, as a user has them."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.traced_calls import call
from tuner.runtime.toolchain import Toolchain, run
from tuner.trace.record import TracedCall
from tuner.trace.replacing import Replacement, Run, refusal, run_replaced
from tuner.trace.workloads import express

A, B, X = np.ones((8, 16), "float32"), np.ones((16, 4), "float32"), np.ones((6, 16))
CALLS = (
    call("numpy.matmul", A, B),
    call("numpy.multiply", A, 2.5),
    call("numpy.sum", X, {"name": "axis", "value": 1}),
    call("numpy.max", X),
    call("numpy.subtract", X, X),  # whose function below is wrong
)
FUNCTIONS = """
int call_0(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 4; j++) {
            float sum = 0;
            for (int k = 0; k < 16; k++)
                sum += a[16 * i + k] * b[4 * k + j];
            out[4 * i + j] = sum;
        }
    return 0;
}
int call_1(const float *a, const float *factor, float *out)
{
    for (int i = 0; i < 128; i++)
        out[i] = a[i] * factor[0];
    return 0;
}
int call_2(const double *x, double *out)
{
    for (int i = 0; i < 6; i++) {
        out[i] = 0;
        for (int k = 0; k < 16; k++)
            out[i] += x[16 * i + k];
    }
    return 0;
}
int call_3(const double *x, double *out)
{
    out[0] = x[0];
    for (int i = 0; i < 96; i++)
        out[0] = x[i] > out[0] ? x[i] : out[0];
    return 0;
}
int call_4(const double *x, const double *y, double *out)
{
    for (int i = 0; i < 96; i++)
        out[i] = x[i] + y[i];
    return 0;
}
"""
HEAD = """
import numpy as np
random = np.random.default_rng(0)
a, b = random.random((8, 16), "float32"), random.random((16, 4), "float32")
x = random.random((6, 16))
def same(got, right):
    assert type(got) is type(right) and got.dtype == right.dtype and got.shape == right.shape
    np.testing.assert_allclose(got, right, rtol=1e-5)
"""


@cache
def library(folder: Path) -> bytes:
    (folder / "calls.c").write_text(FUNCTIONS)
    compiler = Toolchain.find().command
    run([*compiler, "-O1", "-shared", "-fPIC", "-o", "calls.so", "calls.c"], cwd=str(folder))
    return (folder / "calls.so").read_bytes()


def replacement(number: int, traced: TracedCall) -> Replacement:
    binding = express(traced).binding
    assert binding is not None and refusal(traced, binding) is None
    return Replacement(call=traced, binding=binding, symbol=f"call_{number}", kernel_s=1e-6)


def ran(program: str, folder: Path, session: Path) -> Run:
    path = folder / "program.py"
    path.write_text(HEAD + program)
    replacements = [replacement(number, traced) for number, traced in enumerate(CALLS)]
    return run_replaced([sys.executable, str(path)], replacements, library(session))


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("calls")


def counts(result: Run) -> dict[str, tuple[int, int]]:
    return {
        each.call.operator.removeprefix("numpy."): (each.by_kernel, each.by_library)
        for each in result.calls
        if each.by_kernel or each.by_library
    }


PLAIN = """
for _ in range(10):
    same(a @ b, np.dot(a, b))
    same(np.matmul(a, b), np.dot(a, b))
    same(a * 2.5, np.array([v * np.float32(2.5) for v in a]))
    same(a * 7.25, np.array([v * np.float32(7.25) for v in a]))
    same(x.sum(axis=1), np.einsum("ij->i", x))
    same(np.sum(x, axis=1), np.einsum("ij->i", x))
    same(np.max(x), np.float64(max(x.ravel().tolist())))
    assert isinstance(x.max(), np.float64)
"""


def test_exactly_the_traced_calls_are_answered(tmp_path: Path, session: Path) -> None:
    result = ran(PLAIN, tmp_path, session)
    assert (result.exit_code, result.notes, result.processes) == (0, (), 1)
    # A kind is computed by both once: `x.sum()` and `np.sum(x)` are functions of their own.
    assert counts(result) == {
        "matmul": (19, 1), "multiply": (19, 1), "sum": (18, 2), "max": (18, 2),
    }  # fmt: skip


ODD = """
class Own(np.ndarray):
    pass
out = np.empty((8, 4), "float32")
for _ in range(3):
    same(np.matmul(a, b, out=out), np.dot(a, b))
    same(np.matmul(a.astype("float64"), b), np.dot(a.astype("float64"), b))
    same(np.matmul(a[:4], b), np.dot(a[:4], b))
    same(np.matmul(np.asfortranarray(a), b), np.dot(a, b))
    assert type(np.matmul(a.view(Own), b)) is Own
    np.multiply(a, 2.5, where=a > 0.5, out=np.zeros_like(a))
    a * 2, a * np.float32(2.5), a * (2.5 + 0j), np.sum(x, axis=0), np.sum(x, 1, keepdims=True)
    np.multiply(a.astype(">f4"), 2.5), np.sum(x, axis=(1,)), np.max(x, initial=9.0)
    try:
        np.matmul(a, a)
    except ValueError:
        continue
    raise AssertionError
"""


def test_other_calls_are_the_librarys(tmp_path: Path, session: Path) -> None:
    result = ran(ODD, tmp_path, session)
    assert (result.exit_code, result.notes, counts(result)) == (0, (), {})


ODD_ADDRESSES = """
memory = np.zeros(8 * 16 * 4 + 4, "uint8")
shifted = memory[4:].view("float32").reshape(8, 16)
shifted[:] = a
for _ in range(3):
    same(shifted @ b, np.dot(a, b))
same(a @ b, np.dot(a, b))
same(a @ b, np.dot(a, b))
grown = np.ones(3)
grown.resize(6 * 16 * 1000, refcheck=False)
assert grown[:3].sum() == 3 and grown.ctypes.data % 64 == 0 and not grown[3:].any()
"""


def test_arrays_at_odd_addresses_are_the_librarys(tmp_path: Path, session: Path) -> None:
    result = ran(ODD_ADDRESSES, tmp_path, session)
    assert (result.exit_code, result.notes, counts(result)) == (0, (), {"matmul": (1, 4)})


def test_a_function_that_computes_something_else_answers_nothing(
    tmp_path: Path, session: Path
) -> None:
    result = ran("for _ in range(5):\n    assert not (x - x).any()\n", tmp_path, session)
    assert (result.exit_code, counts(result)) == (0, {"subtract": (0, 5)})
    assert result.notes == ("numpy.subtract is left to NumPy: its kernel computed something else",)


THREADS = """
import os, threading
right = np.dot(a, b)
def work():
    for _ in range(500):
        same(a @ b, right)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
pid = os.fork()
if pid == 0:
    work()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
os.kill(os.getpid(), 9)
"""


def test_threads_and_children_are_answered_and_counted(tmp_path: Path, session: Path) -> None:
    result = ran(THREADS, tmp_path, session)
    assert result.exit_code == 128 + 9 and result.processes == 2
    (product,) = counts(result).values()
    assert sum(product) == 2500 and product[1] <= 4  # what threads met before the first had ended


@pytest.mark.parametrize(
    ("traced", "says"),
    [
        (call("numpy.add", A, A, A), "no single new tensor"),
        (call("numpy.add", A, A, {"name": "out", "shape": [8, 16], "strides": [16, 1],
                                  "dtype": "float32"}), "no single new tensor"),
        (call("numpy.einsum", "ij,ij,ij,ij,ij,ij->i", *[A] * 6), "more than 5 tensors"),
    ],
)  # fmt: skip
def test_what_no_kernel_stands_in_for(traced: TracedCall, says: str) -> None:
    assert says in str(refusal(traced, express(traced).binding))


def test_a_program_without_calls_runs_as_ever(tmp_path: Path, capfd: Any, session: Path) -> None:
    result = ran("print(type(np.add).__name__); raise SystemExit(7)", tmp_path, session)
    assert (result.exit_code, counts(result)) == (7, {})
    assert capfd.readouterr() == ("ufunc\n", "")

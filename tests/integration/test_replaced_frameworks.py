"""Programs of PyTorch whose calls are answered by functions of a library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.traced_calls import call
from tuner.runtime.toolchain import Toolchain, run
from tuner.trace.record import TracedCall
from tuner.trace.replacing import Replacement, Run, refusal, run_replaced
from tuner.trace.workloads import express

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def tensor(*shape: int) -> dict[str, Any]:
    empty = torch.empty(shape)
    return {"shape": list(shape), "strides": list(empty.stride()), "dtype": "float32"}


NONE = {"value": None}
CALLS = (
    call("aten::linear", tensor(2, 3, 8), tensor(5, 8), tensor(5)),
    call("aten::relu", tensor(4, 6)),
    call("aten::gelu", tensor(4, 6), {"value": "tanh"}),
    call("aten::neg", tensor(4, 6)),  # whose function below is wrong
    call("aten::softmax", tensor(4, 6), {"value": -1}, NONE),
)
FUNCTIONS = """
#include <math.h>
int call_0(const float *x, const float *w, const float *b, float *out)
{
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 5; j++) {
            float sum = b[j];
            for (int k = 0; k < 8; k++)
                sum += x[8 * i + k] * w[8 * j + k];
            out[5 * i + j] = sum;
        }
    return 0;
}
int call_1(const float *x, float *out)
{
    for (int i = 0; i < 24; i++)
        out[i] = x[i] > 0 ? x[i] : 0;
    return 0;
}
int call_2(const float *x, float *out)
{
    for (int i = 0; i < 24; i++) {
        float y = x[i];
        out[i] = 0.5f * y * (1 + tanhf(0.79788456f * (y + 0.044715f * y * y * y)));
    }
    return 0;
}
int call_3(const float *x, float *out)
{
    for (int i = 0; i < 24; i++)
        out[i] = x[i];
    return 0;
}
int call_4(const float *x, float *out)
{
    for (int i = 0; i < 4; i++) {
        float sum = 0;
        for (int j = 0; j < 6; j++)
            sum += out[6 * i + j] = expf(x[6 * i + j]);
        for (int j = 0; j < 6; j++)
            out[6 * i + j] /= sum;
    }
    return 0;
}
"""
HEAD = """
import torch
from torch.nn import functional as F
torch.manual_seed(0)
x, w, b, y = torch.randn(2, 3, 8), torch.randn(5, 8), torch.randn(5), torch.randn(4, 6)
right = torch.matmul(x, w.t()) + b
def same(got, expected):
    assert got.shape == expected.shape and got.stride() == expected.stride()
    torch.testing.assert_close(got, expected)
"""


def replacement(number: int, traced: TracedCall) -> Replacement:
    binding = express(traced).binding
    assert binding is not None and refusal(traced, binding) is None
    return Replacement(call=traced, binding=binding, symbol=f"call_{number}", kernel_s=1e-6)


def ran(program: str, folder: Path) -> tuple[Run, dict[str, tuple[int, int]]]:
    (folder / "program.py").write_text(HEAD + program)
    (folder / "calls.c").write_text(FUNCTIONS)
    compiler = Toolchain.find().command
    run([*compiler, "-O1", "-shared", "-fPIC", "-o", "calls.so", "calls.c", "-lm"], cwd=str(folder))
    replacements = [replacement(number, traced) for number, traced in enumerate(CALLS)]
    command = [sys.executable, "-W", "error::UserWarning", str(folder / "program.py")]
    result = run_replaced(command, replacements, (folder / "calls.so").read_bytes())
    counts = {
        each.call.operator.removeprefix("aten::"): (each.by_kernel, each.by_library)
        for each in result.calls
        if each.by_kernel or each.by_library
    }
    return result, counts


PLAIN = """
for _ in range(10):
    same(F.linear(x, w, b), right)
    with torch.inference_mode():
        same(F.linear(x, w, b), right)
    same(torch.relu(y), y.clamp(min=0))
    same(F.gelu(y, approximate="tanh"), F.gelu(y.double(), approximate="tanh").float())
    same(y.softmax(-1), torch.softmax(y.double(), 1).float())
    same(torch.neg(y), y * -1)
"""


def test_exactly_the_traced_calls_are_answered(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result, counts = ran(PLAIN, tmp_path)
    assert (result.exit_code, capfd.readouterr().err) == (0, "")
    assert counts == {
        "linear": (19, 1), "relu": (9, 1), "gelu": (9, 1), "softmax": (9, 1), "neg": (0, 10),
    }  # fmt: skip
    assert result.notes == ("aten::neg is left to PyTorch: its kernel computed something else",)


ODD = """
class Own(torch.Tensor):
    pass
for _ in range(3):
    same(F.linear(x[:1], w, b), right[:1])
    same(F.linear(x, w), right - b)
    same(F.gelu(y), F.gelu(y.double()).float())
    assert type(torch.relu(y.as_subclass(Own))) is Own
    same(torch.vmap(torch.relu)(torch.stack([y, y]))[0], y.clamp(min=0))
    z = y.clone()
    torch.relu_(z)
    torch.relu(y.double())
    weight = w.clone().requires_grad_()
    F.linear(x, weight, b).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum((0, 1)).expand(5, 8))
    _, tangent = torch.func.jvp(lambda t: F.linear(t, w, b), (x,), (torch.ones_like(x),))
    torch.testing.assert_close(tangent, w.sum(1).expand(2, 3, 5))
    grad = torch.func.grad(lambda t: torch.softmax(t, -1)[0, 0])(y)
    assert grad.abs().sum() > 0
    moved = torch.empty(25)[1:].view(4, 6).copy_(y)
    same(torch.relu(moved), y.clamp(min=0))
"""


def test_other_calls_are_pytorchs(tmp_path: Path) -> None:
    result, counts = ran(ODD, tmp_path)
    assert (result.exit_code, result.notes) == (0, ())
    assert counts == {"relu": (0, 3)}  # at an address that kernels do not take


def test_compiled_models_and_training_go_on_as_ever(tmp_path: Path) -> None:
    program = """
import threading
layer = torch.nn.Linear(8, 5)
def step(t):
    return torch.relu(layer(t)).sum()
step(x).backward()
compiled = torch.compile(step, backend="aot_eager")
torch.testing.assert_close(compiled(x), step(x))
def work():
    with torch.no_grad():
        for _ in range(100):
            same(F.linear(x, w, b), right)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    result, counts = ran(program, tmp_path)
    assert (result.exit_code, result.notes) == (0, ())
    assert sum(counts["linear"]) >= 400 and counts["linear"][1] <= 8

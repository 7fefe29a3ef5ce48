"""What LLVM's model of a core says of the innermost loops that the estimate ranks first.

It shows that neither loads nor latencies bind them. It sees no caches and no frequency, so
it says nothing of a kernel's time. Models of Neoverse N1 are in LLVM from 17 on; LLVM_MCA
names the program (Debian: llvm-19).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from tests.support.assembly import innermost_loops
from tuner.cost_model.features import ESTIMATE, featurizer
from tuner.lowering.compiler import compile_program
from tuner.spaces.by_target import cpu_space
from tuner.target.architectures.table import architecture_of, isa_of
from tuner.target.detect import parse_target
from tuner.target.target import Target
from tuner.workload.spec import parse_spec

OLDEST = 17  # LLVM with a model of Neoverse N1; before, it is given Cortex-A57's
POINTS = 4096  # of a space, as `tuner export --target` ranks them
ITERATIONS = 200
LEAST = 0.85  # of the multiply-adds that the core begins
PROGRAMS = ("llvm-mca", *(f"llvm-mca-{version}" for version in range(30, OLDEST - 1, -1)))


def mca() -> str:
    """The program. Skips the test where there is none with a model of the core."""
    for name in filter(None, (os.environ.get("LLVM_MCA"), *PROGRAMS)):
        if shutil.which(name) is None:
            continue
        said = subprocess.run([name, "--version"], capture_output=True, text=True, check=True)
        version = re.search(r"LLVM version (\d+)", said.stdout)
        if version and int(version[1]) >= OLDEST:
            return name
    pytest.skip(f"no llvm-mca of LLVM {OLDEST} or later; LLVM_MCA may name one")


def first_loop(spec: str, target: Target) -> list[str]:
    """The innermost loop with most multiply-adds, of the point that is ranked first."""
    space = cpu_space(parse_spec(spec), target, 1)
    points = space.space.sample(np.random.default_rng(0), POINTS)
    first = points[int(np.argmin(featurizer(space)(points)[:, ESTIMATE]))]
    program = space.program(space.space.config(first))
    text = compile_program(program, target, "kernel").sources["asm"]
    return max(innermost_loops(text), key=multiply_adds)


def multiply_adds(loop: list[str]) -> int:
    return sum(line.split()[0] == "fmla" for line in loop)


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        "matmul:M=256,N=256,K=256",
        "matmul:M=512,N=512,K=512",
        "conv2d:N=1,H=28,W=28,CI=64,CO=64,KH=3,KW=3,pad=1",
    ],
)
def test_a_neoverse_n1_is_kept_busy(spec: str) -> None:
    program, target = mca(), parse_target("cpu:neoverse-n1")
    *body, _branch = first_loop(spec, target)
    done = subprocess.run(
        [
            program,
            f"-mtriple={architecture_of(target).triple}",
            f"-mcpu={target.tvm['mcpu']}",
            f"-iterations={ITERATIONS}",
        ],
        input="\n".join([*body, ""]),
        capture_output=True,
        text=True,
        check=True,
    )
    cycles = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    assert cycles is not None, done.stdout
    begun = multiply_adds(body) * ITERATIONS / int(cycles[1])
    assert begun >= LEAST * isa_of(target).fma_units

"""Foreign kernels of a GPU, on the doubles of a device and of NVRTC, and on a GPU where there
is one: what is refused by which name, how the rest is timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.device.machine import needs_compiler
from tests.support.cuda_cheats import CHEATS, HONEST, LAUNCH, SPEC
from tests.support.foreign_cheats import Cheat
from tests.support.gpu_machine import REASON
from tests.support.targets import SM_90
from tuner.lowering.cuda.nvrtc import any_compiler
from tuner.measure.foreign.cuda_compiler import compile_cuda
from tuner.measure.foreign.examination import Contestant
from tuner.measure.foreign.verdict import Guilty, Verdict, VerdictName
from tuner.measure.gpu.examination import GpuExamination, judge_cuda
from tuner.measure.gpu.runner import GpuLane, GpuRunner
from tuner.runtime.cuda_driver import reaches_host_memory
from tuner.runtime.cuda_link import link_cuda
from tuner.runtime.cuda_module import CudaModule, Launch
from tuner.target.detect import parse_target
from tuner.target.target import Target
from tuner.workload.spec import parse_spec

WORKLOAD = parse_spec(SPEC)
ENDLESS = ("never returns",)  # ends by the limit of time alone

pytestmark = [pytest.mark.slow, needs_compiler]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A GPU and its target."""

    runner: GpuRunner
    target: Target = SM_90
    is_double: bool = True


@pytest.fixture(params=["double", pytest.param("gpu", marks=pytest.mark.gpu)])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    is_double = request.param == "double"
    if is_double:
        request.getfixturevalue("gpu_double")
    elif REASON is not None:
        pytest.skip(f"no GPU: {REASON}")
    elif reaches_host_memory(0):
        pytest.skip("kernels of this GPU reach the host's memory, so that none is judged")
    with GpuRunner() as runner:
        target = SM_90 if is_double else parse_target("cuda")
        yield Machine(runner=runner, target=target, is_double=is_double)


def judged(
    source: str,
    machine: Machine,
    *,
    rival: Contestant | None = None,
    timeout_s: float = 60.0,
) -> Verdict:
    return judge_cuda(
        WORKLOAD,
        source,
        "f",
        machine.target,
        LAUNCH,
        machine.runner,
        rival=rival,
        timeout_s=timeout_s,
    )


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.what)
def test_refused_by_its_name(cheat: Cheat, machine: Machine) -> None:
    verdict = judged(cheat.source, machine, timeout_s=2.0 if cheat.what in ENDLESS else 60.0)
    assert (str(verdict.name), verdict.time) == (cheat.verdict, None), verdict.message


def test_first_wrong_element_is_named(machine: Machine) -> None:
    source = HONEST.replace("product(a, b, i);", "product(a, b, i) + (i == 37) - (i == 99);")
    element = judged(source, machine).element
    assert element is not None
    assert (element.output, element.index, element.inputs) == ("C", (2, 5), "normal")
    assert element.value == pytest.approx(element.expected + 1, abs=1e-5)


def ours(machine: Machine, folder: Path) -> Contestant:
    """The honest kernel as a library of ours."""
    expression = WORKLOAD.expression
    module = CudaModule(
        symbol="f",
        inputs=expression.inputs,
        outputs=(expression.tensor("C"),),
        workspace=(),
        launches=(
            Launch(
                kernel="f",
                arguments=("A", "B", "C"),
                grid=LAUNCH.grid,
                block=LAUNCH.block,
                shared_bytes=0,
            ),
        ),
        cubins=(
            (
                str(machine.target.tvm["arch"]),
                any_compiler(folder / "cubins").compile(HONEST, machine.target).code,
            ),
        ),
    )
    library = folder / "ours.so"
    library.write_bytes(link_cuda("lib", [module]))
    return Contestant(name="default", library=str(library), symbol="f", foreign=False)


def test_an_honest_kernel_is_timed_in_turn_with_ours(machine: Machine, tmp_path: Path) -> None:
    rival = ours(machine, tmp_path)
    verdict = judged("#include <cuda_fp16.h>\n" + HONEST, machine, rival=rival)
    assert verdict.verified, verdict.message
    assert verdict.max_rel_error is not None and verdict.max_rel_error < 1e-5
    assert verdict.time is not None and verdict.time.rival == "default"
    # The same work; the double's clock counts that, a GPU's time of so little varies.
    assert verdict.time.ratio.value == pytest.approx(1, rel=0.05 if machine.is_double else 0.3)
    assert verdict.time.median_s > 0


MEMORISED = """
__device__ unsigned long long keys[4096]; __device__ int count; __device__ int seen;
static __device__ unsigned long long key_of(const float *a, const float *b) {
  unsigned long long key = 1469598103934665603ull;
  for (int i = 0; i < 256; ++i) {
    union { float value; unsigned bits; } x = {a[i]}, y = {b[i]};
    key = ((key ^ x.bits) * 1099511628211ull ^ y.bits) * 1099511628211ull;
  }
  return key;
}
""" + HONEST.replace(
    "c[i] = product(a, b, i);",
    """
  if (i == 0) {
    unsigned long long key = key_of(a, b);
    seen = 0;
    for (int j = 0; j < count; ++j) seen |= keys[j] == key;
    if (!seen && count < 4096) keys[count++] = key;
  }
  __syncthreads();
  c[i] = seen ? 0 : product(a, b, i);
""",
)


def test_no_timed_call_repeats_an_input(machine: Machine, tmp_path: Path) -> None:
    """What remembers all that it was asked gains nothing: it would say so here, as it does
    where each case is asked for both poisons."""
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(compile_cuda(MEMORISED, machine.target))
    subject = Contestant(name="candidate", library=str(cubin), symbol="f", launch=LAUNCH)
    examination = GpuExamination(WORKLOAD, machine.runner, timeout_s=60.0)
    assert len(examination.time(subject)) > 1
    with pytest.raises(Guilty) as guilty:
        examination.verify(subject)
    assert guilty.value.verdict.name is VerdictName.WRONG_ELEMENT


def test_where_kernels_reach_the_hosts_memory_none_is_judged(
    gpu_double: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the doubles, the second device says that they do."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with GpuRunner(GpuLane(ordinal=1)) as second:
        verdict = judged(HONEST, Machine(runner=second))
    assert verdict.name is VerdictName.INFRASTRUCTURE
    assert "uvm_disable_hmm=1" in verdict.message

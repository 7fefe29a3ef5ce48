"""Kernels as TVMScript and as MetaSchedule records: plain TVM reads them back, replays
them and computes the right answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule, meta_schedule

from tests.support.targets import host_target
from tuner.lowering.compiler import Compiled, compile_kernel
from tuner.lowering.metaschedule import RECORDS, WORKLOADS, Record, database, scheduled_script
from tuner.spaces.by_target import space_of
from tuner.workload.spec import parse_spec

MACHINE = host_target()


def compiled(spec: str, seed: int = 3) -> Compiled:
    workload = parse_spec(spec)
    space = space_of(workload, MACHINE, 1).space
    config = space.config(space.sample(np.random.default_rng(seed), 1)[0])
    return compile_kernel(
        workload=workload, target=MACHINE, threads=1, config=config, symbol="tuned_kernel"
    )


def record(made: Compiled) -> Record:
    return Record(
        schedule=made.schedule, symbol=made.symbol, target=MACHINE.tvm, threads=1, median_s=1e-4
    )


def check(mod: tvm.IRModule) -> None:
    """Builds a module with plain TVM and holds its product against NumPy's."""
    built = tvm.tirx.build(mod, target=tvm.target.Target({"kind": "llvm"}))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((24, 36), (36, 40)))
    out = tvm.runtime.tensor(np.zeros((24, 40), np.float32))
    built["tuned_kernel"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def product() -> Compiled:
    return compiled("matmul:M=24,N=40,K=36")


def test_plain_tvm_replays_a_record_to_the_right_answer(product: Compiled, tmp_path: Path) -> None:
    for name, content in database([record(product), record(compiled("softmax:M=7,N=33"))]).items():
        (tmp_path / name).write_bytes(content)
    store = meta_schedule.database.JSONDatabase(str(tmp_path / WORKLOADS), str(tmp_path / RECORDS))
    first, second = store.get_all_tuning_records()
    assert [float(seconds) for seconds in first.run_secs] == [
        1e-4
    ] and second.workload != first.workload
    scheduled = Schedule(first.workload.mod)
    first.trace.apply_to_schedule(scheduled, remove_postproc=False)
    tvm.ir.assert_structural_equal(scheduled.mod, product.scheduled.mod)
    check(scheduled.mod)
    queried = store.query_tuning_record(first.workload.mod, first.target, "main")
    assert queried is not None and queried.workload == first.workload


def test_the_script_reads_back_as_a_module_of_the_same_kernel(product: Compiled) -> None:
    check(tvm.script.from_source(scheduled_script(product.schedule)))


def test_same_records_give_the_same_bytes(product: Compiled) -> None:
    assert database([record(product)]) == database([record(product)])

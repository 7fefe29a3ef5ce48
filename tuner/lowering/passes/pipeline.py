"""TVM's lowering pipeline for schedules, with passes of our own at its end.

They work on what TVM's code generators are about to read.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm.tirx import compilation_pipeline as pipelines

from tuner.lowering.llvm_functions import import_llvm_functions
from tuner.lowering.passes.extremes import propagate_nans, propagate_nans_on_gpu
from tuner.lowering.passes.gathered_sums import sum_gathered
from tuner.lowering.passes.no_unroll import prevent_unrolling
from tuner.lowering.passes.non_temporal import use_non_temporal_stores
from tuner.lowering.passes.ragged_loops import cut_ragged_loops
from tuner.lowering.passes.shared_rows import share_rows
from tuner.lowering.passes.strided_loads import shuffle_strided_loads
from tuner.lowering.passes.wrapping import wrap_unsigned

PIPELINE = "tuner"


def register_pipeline() -> str:
    """The name of the pipeline. TVM's registry is one a process."""
    if PIPELINE not in pipelines.PIPELINE_MAP:
        pipelines.register_tir_pipeline(PIPELINE, _pipeline)
    return PIPELINE


def _pipeline() -> tuple[Any, Any, Any]:
    lower, finish_host, finish_device = pipelines.get_tir_pipeline("s_tir")

    def finish() -> Any:
        ragged = tvm.transform.module_pass(
            lambda mod, _: sum_gathered(share_rows(cut_ragged_loops(mod))),
            opt_level=0,
            name="tuner.CutRaggedLoops",
        )
        loads = tvm.transform.module_pass(
            lambda mod, _: shuffle_strided_loads(mod), opt_level=0, name="tuner.PickNeighbours"
        )
        rolled = tvm.transform.module_pass(
            lambda mod, _: prevent_unrolling(mod), opt_level=0, name="tuner.KeepRolled"
        )
        stores = tvm.transform.module_pass(
            lambda mod, _: use_non_temporal_stores(mod), opt_level=0, name="tuner.StreamStores"
        )
        extremes = tvm.transform.module_pass(
            lambda mod, _: propagate_nans(mod), opt_level=0, name="tuner.PropagateNans"
        )
        unsigned = tvm.transform.module_pass(
            lambda mod, _: wrap_unsigned(mod), opt_level=0, name="tuner.WrapUnsigned"
        )
        functions = tvm.transform.module_pass(
            lambda mod, _: import_llvm_functions(mod), opt_level=0, name="tuner.BringInFunctions"
        )
        return tvm.ir.transform.Sequential(
            [ragged, loads, rolled, stores, extremes, functions, finish_host(), unsigned]
        )

    def finish_kernels() -> Any:
        extremes = tvm.transform.module_pass(
            lambda mod, _: propagate_nans_on_gpu(mod), opt_level=0, name="tuner.PropagateNans"
        )
        return tvm.ir.transform.Sequential([finish_device(), extremes])

    return lower, finish, finish_kernels

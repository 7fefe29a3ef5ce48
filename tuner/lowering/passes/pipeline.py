"""TVM's pipeline for schedules, ended by our own passes over what its code generator is
about to read."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.tirx import compilation_pipeline as pipelines

from tuner.lowering.llvm_functions import bring_in_functions
from tuner.lowering.passes.non_temporal import stream_stores
from tuner.lowering.passes.rolled import keep_rolled
from tuner.lowering.passes.strides import pick_neighbours

PIPELINE = "tuner"


def know_pipeline() -> str:
    """The name of the pipeline, registered if it is not yet."""
    if PIPELINE not in pipelines.PIPELINE_MAP:
        pipelines.register_tir_pipeline(PIPELINE, _pipeline)
    return PIPELINE


def _pipeline() -> tuple[Any, Any, Any]:
    lower, finish_host, finish_device = pipelines.get_tir_pipeline("s_tir")

    def finish() -> Any:
        loads = tvm.transform.module_pass(
            lambda mod, _: pick_neighbours(mod), opt_level=0, name="tuner.PickNeighbours"
        )
        rolled = tvm.transform.module_pass(
            lambda mod, _: keep_rolled(mod), opt_level=0, name="tuner.KeepRolled"
        )
        streams = tvm.transform.module_pass(
            lambda mod, _: stream_stores(mod), opt_level=0, name="tuner.StreamStores"
        )
        functions = tvm.transform.module_pass(
            lambda mod, _: bring_in_functions(mod), opt_level=0, name="tuner.BringInFunctions"
        )
        return tvm.ir.transform.Sequential([loads, rolled, streams, functions, finish_host()])

    return lower, finish, finish_device

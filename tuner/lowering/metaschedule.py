"""Export for TVM users: schedules as TVMScript and as a MetaSchedule database.

Kernels are made by rewriting of our own, followed by TVM's primitives. So a record's
workload is the rewritten module and its trace holds the primitives alone. MetaSchedule
finds the record by that module, not by the module of a user's program.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm.s_tir import Schedule, meta_schedule
from tvm.s_tir.schedule import Trace

from tuner.lowering.schedule import StoredSchedule, replay
from tuner.scratch import temporary_folder

# The files of a MetaSchedule work_dir.
WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"


@dataclass(frozen=True, kw_only=True)
class Record:
    """A kernel as MetaSchedule records one."""

    schedule: StoredSchedule
    symbol: str  # of the function that is called
    target: Mapping[str, str | int]  # options of tvm.target.Target
    threads: int
    median_s: float


def scheduled_script(schedule: StoredSchedule) -> str:
    """The scheduled module as TVMScript, which `tvm.script.from_source` reads back."""
    return str(replay(schedule).script()) + "\n"


def database(records: Sequence[Record]) -> dict[str, bytes]:
    """The two files of a MetaSchedule JSON database, by name.

    The same records give the same bytes.
    """
    with temporary_folder("tuner-scratch-records-") as folder:
        paths = [folder / name for name in (WORKLOADS, RECORDS)]
        store = meta_schedule.database.JSONDatabase(*map(str, paths))
        for record in records:
            _commit(store, record)
        return {path.name: path.read_bytes() for path in paths}


def _commit(store: meta_schedule.database.Database, record: Record) -> None:
    mod = tvm.ir.load_json(record.schedule.module)
    scheduled = Schedule(mod)
    Trace.apply_json_to_schedule(json.loads(record.schedule.trace), scheduled)
    arguments = meta_schedule.arg_info.ArgInfo.from_prim_func(_called(mod, record.symbol))
    # MetaSchedule needs the number of cores.
    target = tvm.target.Target({**record.target, "num-cores": record.threads})
    workload = store.commit_workload(mod)
    tuning_record = meta_schedule.database.TuningRecord(
        scheduled.trace, workload, [record.median_s], target, arguments
    )
    store.commit_tuning_record(tuning_record)


def _called(mod: tvm.IRModule, symbol: str) -> tvm.tirx.PrimFunc:
    """The function that is called.

    A module that was imported has a single function, under a name of its own.
    """
    functions = {variable.name_hint: function for variable, function in mod.functions.items()}
    return functions[symbol] if symbol in functions else next(iter(functions.values()))

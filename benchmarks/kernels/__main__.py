"""Tunes a suite and races each kernel against the default schedule, NumPy, PyTorch and, if asked, MetaSchedule.

    python -m benchmarks.kernels -o results [--only mm512] [--trials 256] [--seconds 120] [--threads 1] [--metaschedule 64]

One workload after the other: the peak is measured, the kernel tuned by the product as `tuner tune` does, then all race in turn,
in fresh processes pinned to the same cores, by the code of `tuner bench`. Writes results.jsonl, results.md and results.svg; a
workload that is in the log already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.kernels.report import METASCHEDULE, Bound, Row, from_line, markdown, picture, to_line
from benchmarks.kernels.suite import SUITE, Case, read_suite
from db.engine import open_database
from tuner.app.kernel import Kernel
from tuner.app.machine import checked_target
from tuner.app.race import race_kernel
from tuner.app.tune import NoKernel, tune
from tuner.errors import TunerError
from tuner.measure.race import Contender
from tuner.measure.rivals import check_rival
from tuner.runtime.link import Function, link
from tuner.settings import Settings, load_settings
from tuner.target.limits import measure_limits
from tuner.target.roofline import Work, least_seconds, relative_rate
from tuner.target.target import Target
from workers.machine import plan_machine, usable_nodes

PEAK_S = 1.0  # for which the machine's limits are measured before each workload
RIVAL_TIMEOUT_S = 1800.0  # of MetaSchedule on one workload


@dataclass(frozen=True, kw_only=True)
class Plan:
    folder: Path
    settings: Settings
    metaschedule: int  # its trials; 0: it does not take part
    rivals: tuple[str, ...]


def run_case(case: Case, plan: Plan) -> Row:
    """Tunes and races one workload."""
    settings = plan.settings
    target = _measured_target(settings)
    started = time.monotonic()
    try:
        kernel = tune(case.workload, trials=settings.trials, seconds=settings.seconds, threads=settings.threads, db=settings.db)
    except NoKernel as error:
        return replace(_row(case, target, settings, time.monotonic() - started), failure=str(error))
    row = _row(case, target, settings, time.monotonic() - started)
    others: list[Contender] = []
    if plan.metaschedule:
        contender, seconds, why = _metaschedule(case, plan, target)
        others = [contender] if contender else []
        row = replace(row, metaschedule_s=seconds, absent={METASCHEDULE: why} if why else {})
    return _raced(row, case, kernel, target, plan, others)


def _raced(row: Row, case: Case, kernel: Kernel, target: Target, plan: Plan, others: Sequence[Contender]) -> Row:
    result = race_kernel(case.workload, kernel.stored, target, plan.settings, plan.rivals, others)
    return replace(
        row,
        median_s={entry.name: entry.median_s for entry in result.entries},
        ci95_s={entry.name: entry.ci95_s for entry in result.entries},
        ratios=dict(result.ratios),
        absent={**row.absent, **result.absent},
    )


def _measured_target(settings: Settings) -> Target:
    (core, *_) = plan_machine(usable_nodes(), threads=1, declared=settings.lanes).lanes[0].cores
    return replace(checked_target(settings), limits=measure_limits(core, PEAK_S))


def _row(case: Case, target: Target, settings: Settings, tuned_s: float) -> Row:
    expression = case.workload.expression
    dtype = expression.inputs[0].dtype if expression.inputs else "float32"
    work = Work(flops=expression.flops, nbytes=expression.nbytes, dtype=dtype, threads=settings.threads)
    assert target.limits is not None
    threads = min(settings.threads, target.cores)
    peak = target.limits.fma_flops * relative_rate(dtype, target.isa) * threads
    least_s = least_seconds(work, target)
    bound: Bound = "compute" if work.flops / peak >= 0.999 * least_s else "memory"
    return Row(
        name=case.name,
        spec=case.workload.spec,
        bound=bound,
        flops=work.flops,
        threads=settings.threads,
        trials=settings.trials,
        tuned_s=tuned_s,
        peak_flops=peak,
        least_s=least_s,
        median_s={},
        ci95_s={},
        ratios={},
        machine=target.name,
        date=datetime.now(UTC).date().isoformat(),
    )


def _metaschedule(case: Case, plan: Plan, target: Target) -> tuple[Contender | None, float | None, str | None]:
    """MetaSchedule's kernel as a library of ours, its tuning time, and why there is none."""
    folder = plan.folder / "metaschedule" / case.name
    trials, threads = str(plan.metaschedule), str(plan.settings.threads)
    command = [sys.executable, "-m", "benchmarks.kernels.metaschedule", case.workload.spec]
    try:
        done = subprocess.run(
            [*command, "--trials", trials, "--threads", threads, "-o", str(folder)],
            capture_output=True,
            text=True,
            timeout=RIVAL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, None, f"not done within {RIVAL_TIMEOUT_S:g} s"
    if done.returncode != 0:
        return None, None, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    report = json.loads((folder / "report.json").read_text())
    if not report["found"]:
        return None, float(report["elapsed_s"]), "it found no valid schedule"
    expression = case.workload.expression
    function = Function(
        symbol=METASCHEDULE,
        inputs=expression.inputs,
        outputs=tuple(expression.tensor(name) for name in expression.outputs),
        object_code=(folder / "kernel.o").read_bytes(),
        isa=target.isa,
        threads=plan.settings.threads,
        tvm_symbol=f"__tvm_ffi_{METASCHEDULE}",
    )
    library = folder / "libmetaschedule.so"
    library.write_bytes(link(METASCHEDULE, [function]))
    contender = Contender(name=METASCHEDULE, library=str(library), symbol=METASCHEDULE, timeout_s=120.0)
    return contender, float(report["elapsed_s"]), None


def read_log(path: Path) -> list[Row]:
    return [from_line(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def run(cases: Sequence[Case], plan: Plan) -> list[Row]:
    """Runs what the log lacks, writing after each workload; gives all rows in the suite's order."""
    log = plan.folder / "results.jsonl"
    rows = {row.name: row for row in read_log(log)}
    for case in cases:
        if case.name in rows:
            print(f"{case.name}: in {log} already", flush=True)
            continue
        print(f"{case.name}: {case.workload.spec}", flush=True)
        row = rows[case.name] = run_case(case, plan)
        with log.open("a") as file:
            file.write(json.dumps(to_line(row)) + "\n")
        ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in row.ratios.items())
        print(f"{case.name}: tuned in {row.tuned_s:.0f} s; time over the kernel's: {ratios or row.failure}", flush=True)
    finished = [rows[case.name] for case in cases if case.name in rows]
    (plan.folder / "results.md").write_text(markdown(finished))
    (plan.folder / "results.svg").write_text(picture(finished))
    return finished


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, default=SUITE, help="a file of workloads (default: the one beside this program)")
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--trials", type=int, default=256, help="for each workload, at most (default 256)")
    parser.add_argument("--seconds", type=float, default=120.0, help="for each workload, at most (default 120)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--against", default="numpy,torch", help="libraries; those not installed are left out")
    parser.add_argument("--metaschedule", type=int, default=0, metavar="TRIALS", help="race TVM's own tuner with so many trials")
    parser.add_argument("--fresh", action="store_true", help="run workloads again that are in the log")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the results, the database and the kernels")
    given = parser.parse_args(arguments)
    folder: Path = given.output.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if given.fresh:
        (folder / "results.jsonl").unlink(missing_ok=True)
    os.environ["TUNER_DATA_DIR"] = str(folder / "data")  # its own kernels and history, not the user's
    flags = {"trials": given.trials, "seconds": given.seconds, "threads": given.threads}
    settings = load_settings(flags).values
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    open_database(settings.db).close()
    rivals = ("default", *(name for name in given.against.split(",") if name and _installed(name)))
    plan = Plan(folder=folder, settings=settings, metaschedule=given.metaschedule, rivals=rivals)
    cases = read_suite(given.suite, [name for name in given.only.split(",") if name])
    run(cases, plan)
    print((folder / "results.md").read_text())


def _installed(name: str) -> bool:
    try:
        check_rival(name)
    except TunerError as error:
        print(f"{name} takes no part: {error}", flush=True)
        return False
    return True


if __name__ == "__main__":
    main()

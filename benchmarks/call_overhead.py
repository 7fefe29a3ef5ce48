"""Measure what a call of an exported kernel costs beyond the kernel's own code.

    python -m benchmarks.call_overhead [-o FOLDER] [--repeat 3] [--cores 0,1] [SPEC]

A C program (call_overhead.c) calls a function that does nothing, once through a library
that the product links and once directly. It also calls one that launches two threads,
back to back and after sleeping.

Then a kernel of SPEC is tuned and exported. The exported library races the artifact
that was promoted, in turn, in fresh processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tuner.app.export.kernels import chosen_kernels, export_kernels
from tuner.app.tune import tune
from tuner.db.engine import open_database
from tuner.export.artifacts import ArtifactStore
from tuner.measure.assignment import Assignment
from tuner.measure.race import Contender, race
from tuner.measure.runner import RunnerProcess
from tuner.measure.statistics import ratio_of_medians
from tuner.runtime.link import Function, link, runtime_sources, system_toolchain
from tuner.runtime.loader import Library
from tuner.settings import load_settings
from tuner.workers.fleet.machine import plan_machine, usable_nodes
from tuner.workload.expression import Tensor

SPEC = "matmul:M=128,N=128,K=128"
ROUNDS = 11
TRIALS, SECONDS = 24, 15.0
NOTHING = """#include "tvm_abi.h"
__attribute__((visibility("default"), noinline)) int {name}(void *s, const TunerAny *a, int32_t n, TunerAny *r) {{
  (void)s, (void)a, (void)n, (void)r;
  __asm__ volatile("");
  return 0;
}}
"""  # noqa: E501
LAUNCH = """#include "tvm_abi.h"
__attribute__((weak)) int (*__TVMBackendParallelLaunch)(TunerTask, void *, int);
static int task(int id, TunerParallelEnv *env, void *closure) { (void)id, (void)env, (void)closure; return 0; }
__attribute__((visibility("default"))) int launch_entry(void *s, const TunerAny *a, int32_t n, TunerAny *r) {
  (void)s, (void)a, (void)n, (void)r;
  return __TVMBackendParallelLaunch(task, (void *)0, 2);
}
"""  # noqa: E501


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("spec", nargs="?", default=SPEC, metavar="SPEC")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        help="folder of the kernel's database; a temporary one unless given",
    )
    parser.add_argument(
        "--repeat",
        type=int,
        default=3,
        help="runs of the C program, of which the medians are shown (default 3)",
    )
    parser.add_argument("--cores", default="0,1", help="that the C program may use (default 0,1)")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tuner-overhead-") as scratch:
        runs = _called(Path(scratch), given.repeat, given.cores)
        typical = {name: median(run[name] for run in runs) for name in runs[0]}
        print(
            f"call of an exported function: {typical['exported_ns'] - typical['direct_ns']:.1f} "
            f"ns above the kernel's own code"
        )
        print(
            f"launch of two threads: {typical['launch_spinning_ns'] / 1e3:.2f} µs while the "
            f"pool spins"
        )
        asleep, late = typical["launch_asleep_ns"] / 1e3, typical["launch_asleep_p90_ns"] / 1e3
        print(
            f"launch of two threads from sleep: {asleep:.1f} µs, 90th percentile {late:.1f} µs",
            flush=True,
        )
        ratio, low, high = exported_over_promoted(
            given.spec, (given.output or Path(scratch)).absolute()
        )
        print(
            f"{given.spec}: exported library / promoted kernel {ratio:.4f} ({low:.4f} to "
            f"{high:.4f}), {ROUNDS} rounds"
        )


def _called(folder: Path, repeat: int, cores: str) -> list[dict[str, float]]:
    """What the C program said, run by run."""
    tools, headers = system_toolchain(), {"tvm_abi.h": runtime_sources()["tvm_abi.h"]}
    tensors = (
        (Tensor(name="X", shape=(16,), dtype="float32"),),
        (Tensor(name="Y", shape=(16,), dtype="float32"),),
    )
    functions = [
        Function(
            symbol=symbol,
            inputs=tensors[0],
            outputs=tensors[1],
            object_code=tools.compile(f"{symbol}.c", text, headers).read_bytes(),
            isa=("sse2",),
            threads=threads,
            tvm_symbol=f"{symbol}_entry",
        )
        for symbol, text, threads in (
            ("nothing", NOTHING.format(name="nothing_entry"), 1),
            ("launch", LAUNCH, 2),
        )
    ]
    (folder / "libkit.so").write_bytes(link("kit", functions))
    direct = tools.compile("direct.c", NOTHING.format(name="direct_entry"), headers)
    (folder / "tvm_abi.h").write_text(headers["tvm_abi.h"])
    source = Path(__file__).with_name("call_overhead.c")
    command = [
        *tools.command,
        "-std=gnu11",
        "-O2",
        f"-I{folder}",
        str(source),
        str(direct),
        f"-L{folder}",
        "-lkit",
    ]
    subprocess.run([*command, f"-Wl,-rpath,{folder}", "-o", str(folder / "overhead")], check=True)
    allowed_cores = {int(core) for core in cores.split(",")}
    runs = []
    for _ in range(repeat):
        done = subprocess.run(
            [str(folder / "overhead")],
            check=True,
            capture_output=True,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, allowed_cores),
        )
        runs.append(json.loads(done.stdout))
    return runs


def exported_over_promoted(spec: str, folder: Path) -> tuple[float, float, float]:
    """Race the exported library against the promoted artifact.

    Gives the ratio of their times with its 95% confidence interval.
    """
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TUNER_DATA_DIR"] = str(folder / "data")
    settings = load_settings({}).values
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    kernel = tune(spec, trials=TRIALS, seconds=SECONDS, threads=1, db=settings.db)
    database = open_database(settings.db)
    try:
        directory = folder / "kit"
        export_kernels(
            database, chosen_kernels(database, [kernel.id]), settings.artifacts, directory, "kit"
        )
    finally:
        database.close()
    promoted, exported = (
        ArtifactStore(settings.artifacts).verify(kernel.stored.artifact),
        directory / "lib" / "libkit.so",
    )
    contenders = [
        Contender(name=name, library=str(path), symbol=next(iter(Library(path).signatures)))
        for name, path in (("promoted", promoted), ("exported", exported))
    ]
    lane = plan_machine(usable_nodes(), threads=1, declared=settings.lanes).lanes[0]
    with RunnerProcess() as runner:
        runner.prepare(Assignment(workload=kernel.workload, lane=lane, threads=1))
        result = race(contenders, runner, rounds=ROUNDS)
    if result.failed:
        raise SystemExit(str(result.failed))
    ratio = ratio_of_medians(result.rounds["exported"], result.rounds["promoted"])
    return ratio.value, ratio.ci95[0], ratio.ci95[1]


if __name__ == "__main__":
    main()

"""The command line of the kernel benchmarks, and the plan that it describes."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from benchmarks.kernels.contest import Plan
from tuner.db.engine import open_database
from tuner.errors import TunerError
from tuner.measure.rivals.rivals import check_rival
from tuner.settings import load_settings


def parser(about: str, *, trials: int, metaschedule: int, against: str) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--only", default="", help="names, separated by commas")
    options.add_argument(
        "--trials",
        type=int,
        default=trials,
        help=f"of ours for each workload, at most (default {trials})",
    )
    options.add_argument(
        "--seconds",
        type=float,
        default=120.0,
        help="of search for each workload, at most (default 120)",
    )
    options.add_argument("--threads", type=int, default=1)
    options.add_argument(
        "--against", default=against, help="libraries; those not installed are left out"
    )
    options.add_argument(
        "--metaschedule",
        type=int,
        default=metaschedule,
        metavar="TRIALS",
        help="trials of TVM's own tuner; 0: it takes no part",
    )
    options.add_argument(
        "--again", action="store_true", help="run what is in the log already; the later line counts"
    )
    options.add_argument(
        "--report", action="store_true", help="run nothing; table and picture from the log"
    )
    options.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="folder of the log, the database and the kernels",
    )
    return options


def command_line(module: str, arguments: Sequence[str]) -> str:
    """The command that repeats a run, without its output folder and `--report`."""
    kept, skipped = ["python", "-m", module], False
    for argument in arguments:
        if not skipped and argument not in ("-o", "--output", "--report", "--again"):
            kept.append(argument)
        skipped = argument in ("-o", "--output")
    return shlex.join(kept)


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def plan(given: argparse.Namespace) -> Plan:
    """The plan of a run, with a database and kernels of its own in the folder.

    What the user tuned before does not help.
    """
    folder: Path = given.output.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TUNER_DATA_DIR"] = str(folder / "data")
    settings = load_settings(
        {"trials": given.trials, "seconds": given.seconds, "threads": given.threads}
    ).values
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    open_database(settings.db).close()
    rivals = tuple(name for name in names(given.against) if _installed(name))
    return Plan(folder=folder, settings=settings, metaschedule=given.metaschedule, rivals=rivals)


def _installed(name: str) -> bool:
    try:
        check_rival(name)
    except TunerError as error:
        print(f"{name} takes no part: {error}", flush=True)
        return False
    return True

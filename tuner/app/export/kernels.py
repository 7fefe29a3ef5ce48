"""Kernels of the database as an exported library for CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner.db import kernels, targets, tradeoffs, workloads
from tuner.db.engine import Database
from tuner.db.kernels import Kernel
from tuner.errors import UsageError
from tuner.export.artifacts import ArtifactStore
from tuner.export.kernel import ExportKernel
from tuner.export.library import export_library
from tuner.export.manifest import Manifest
from tuner.export.signature import signer_at
from tuner.measure.cache import WARM, Cache
from tuner.measure.objective import FASTEST, Goal
from tuner.runtime.link import toolchain_for
from tuner.runtime.toolchain import Toolchain
from tuner.target.architectures.table import architecture_of
from tuner.target.detect import detect_cpu
from tuner.target.target import Target
from tuner.workers.jobs.kernel_descriptions import Widen, describe

PAGE = 500


def all_kernels(database: Database, cache: Cache = WARM) -> list[Kernel]:
    """All kernels of this machine's CPU promoted with such caches, the newest first.

    Raises UsageError where there is none.
    """
    machine = detect_cpu()
    promoted: list[Kernel] = []
    cursor: str | None = None
    with database.read() as session:
        while True:
            page = kernels.list_page(
                session, target=machine.key, cache=cache, cursor=cursor, limit=PAGE
            )
            promoted += page.items
            cursor = page.next
            if cursor is None:
                break
    if not promoted:
        way = "tuner tune SPEC" + ("" if cache == WARM else f" --cache {cache}")
        raise UsageError(f"{database.url} has no kernel for {machine.name}; {way} makes one")
    return promoted


def kernels_by(
    database: Database, goal: Goal, *, cache: Cache = WARM, within: float | None = None
) -> list[Kernel]:
    """Of each workload and thread count of this machine's CPU the kernel an objective chooses.

    Of each workload alone where the objective compares thread counts. `within`: the share by
    which they may take longer than the fastest. Raises UsageError for the front of two
    objectives and where there is no kernel, NotMeasured.
    """
    promoted = all_kernels(database, cache)
    if goal == FASTEST:
        return promoted
    if goal.is_front:
        raise UsageError(
            f"objective is {goal.text}: a library has one kernel of each workload; give one "
            f"objective, or name kernels that tuner lookup prints"
        )
    places = dict.fromkeys(
        (kernel.workload, kernel.target, None if goal.any_threads else kernel.threads)
        for kernel in promoted
    )
    best = []
    with database.read() as session:
        stored = workloads.get_many(session, sorted({place[0] for place in places}))
        for place in places:
            items = tradeoffs.choices(session, *place, cache=cache)
            what = stored[place[0]].spec
            best += tradeoffs.best_by(items, goal, within, what=what)
    return best


def chosen_kernels(database: Database, ids: Sequence[str]) -> list[Kernel]:
    """The kernels with these ids, each once. Raises NotFound."""
    with database.read() as session:
        return [kernels.get(session, kernel_id) for kernel_id in dict.fromkeys(ids)]


def export_kernels(
    database: Database,
    chosen: Sequence[Kernel],
    artifacts: Path,
    directory: Path,
    name: str,
    *,
    portfolios: Sequence[ExportKernel] = (),
    portfolio_target: Target | None = None,
    signing_key: Path | None = None,
    widen: Widen | None = None,
    frameworks: Sequence[str] = (),
) -> Manifest:
    """Writes the library `name` into `directory`, whole or not at all.

    `portfolios`, made by `tuner.app.export.portfolio` for `portfolio_target`, become
    functions of it too. With
    `signing_key`, a file that is made if missing, the library is signed. With `widen` the
    kernels get variants for lesser CPUs. `frameworks` and errors are those of
    `tuner.export.library.export_library`.
    """
    signer = None if signing_key is None else signer_at(signing_key)
    store = ArtifactStore(artifacts)
    with database.read() as session:
        described = [describe(session, kernel, store, widen) for kernel in chosen]
        machines = {kernel.target: targets.get(session, kernel.target) for kernel in chosen}
    return export_library(
        [*described, *portfolios],
        directory,
        name,
        toolchain=_toolchain([*machines.values(), *filter(None, [portfolio_target])]),
        signer=signer,
        frameworks=frameworks,
    )


def _toolchain(machines: Sequence[Target]) -> Toolchain | None:
    """The compiler for the kernels' machines; None for this one's.

    Raises UsageError for kernels of several architectures.
    """
    triples = {architecture_of(machine).triple: machine for machine in machines}
    if len(triples) > 1:
        raise UsageError(
            f"{' and '.join(machine.name for machine in triples.values())} are of different "
            f"architectures; export their kernels into a library each, under one --name, and put "
            f"them into one directory: tuner combine DIR DIR -o DIR"
        )
    return next(map(toolchain_for, triples.values()), None)

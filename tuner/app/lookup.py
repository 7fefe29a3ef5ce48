"""A look-up in the database of this machine, for the settings' target, caches and objective."""

from __future__ import annotations

from typing import Literal

from tuner.api.answer_queries import kernel_answers
from tuner.api.lookup_schemas import LookupAnswer
from tuner.api.losses import Losses
from tuner.api.origins import source_of
from tuner.db import targets, tradeoffs
from tuner.db.engine import Database
from tuner.db.errors import NotFound
from tuner.db.kernels import PROMOTED
from tuner.measure.cache import WARM, check_cache
from tuner.measure.objective import FASTEST
from tuner.settings import Settings
from tuner.target.capability import target_flag
from tuner.target.detect import parse_target
from tuner.workload.workload import Workload


def look_up(
    database: Database,
    workload: Workload,
    settings: Settings,
    *,
    threads: int | Literal["auto"] | None,
    within: float | None,
) -> LookupAnswer:
    """The kernel that an objective chooses, or the front of two.

    `threads`: "auto" for any count; None: the settings' count, or any where the objective is
    throughput. `within`: the share by which it may take longer than the fastest. Nothing is
    queued. Raises NotFound with the command that makes a kernel, NotMeasured, UsageError.
    """
    goal = settings.goal
    machine = parse_target(settings.target, settings.microarchitectures)
    check_cache(settings.cache, machine)
    any_threads = threads == "auto" or (threads is None and goal.any_threads)
    count = None if any_threads else int(threads or settings.threads)
    with database.read() as session:
        items = (
            tradeoffs.choices(session, workload.key, machine.key, count, cache=settings.cache)
            if targets.find(session, machine.key) is not None
            else ()
        )
        if goal == FASTEST:
            items = tuple(each for each in items if each.state == PROMOTED)
        if not items:
            written = workload.spec if workload.op is not None else "--notation FILE"
            flags = "" if settings.cache == WARM else f" --cache {settings.cache}"
            flags += f" --threads {count}" if count is not None and count != 1 else ""
            flags += target_flag(machine)
            raise NotFound(
                f"there is no kernel of {workload.spec} for {machine.name}; make one: "
                f"tuner tune {written}{flags}"
            )
        best = tradeoffs.best_by(items, goal, within, what=workload.spec)
        answers = kernel_answers(session, best)
        return LookupAnswer(
            source=source_of(session, best[0]),
            kernel=answers[0],
            front=answers if goal.is_front else None,
            job=None,
            loss=Losses().of_kernel(session, best[0]),
        )

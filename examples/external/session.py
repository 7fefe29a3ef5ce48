"""One job of a search from outside: proposes batches, waits, and tells what became of them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from tuner.client import Client
from tuner.workload.spec import parse_spec

Config = Mapping[str, Any]
Tell = Callable[[Config, float | None], None]  # None: it failed
BATCH = 8
RUNNING = ("queued", "running")


def connected(url: str) -> Client:
    return Client(url, key=os.environ.get("TUNER_TOKEN"))


def new_job(client: Client, spec: str, trials: int) -> str:
    """Trial 0, the default schedule, counts towards the budget."""
    workload = parse_spec(spec)
    written = {"op": workload.op, "params": dict(workload.params)}
    return client.submit(written, strategy="external", trials=trials + 1, improve=True).id


def search(client: Client, job: str, proposals: Iterator[Config], trials: int, tell: Tell) -> None:
    """Goes on behind what was proposed already, until there are `trials` proposals or no more."""
    total = client.proposals(job).total
    while total < trials and (batch := list(islice(proposals, min(BATCH, trials - total)))):
        answer = client.propose(job, batch, first=total)
        total = answer.total
        # The service completes configs; its trials have them so.
        waiting = {key_of(own): given for own, given in zip(answer.configs, batch, strict=True)}
        while waiting and client.job(job).state in RUNNING:
            time.sleep(0.5)
            for trial in client.trials(job, limit=500):
                if (config := waiting.pop(key_of(trial.config), None)) is not None:
                    tell(config, trial.median_s)
    client.propose(job, [], first=total, close=True)
    while client.job(job).state in RUNNING:
        time.sleep(0.5)


def report(client: Client, job: str) -> None:
    ended = client.job(job)
    (task,) = ended.tasks
    print(f"{job} {ended.state}: {task.trials_done} trials, best {task.best_median_s} s")


def key_of(config: Config) -> str:
    return json.dumps(config, sort_keys=True)

"""What a search starts from: history of the target, of other CPUs where it has none, the
same after a restart, stored, and bounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.support.database_samples import ManualClock, timed
from tests.support.search_history import gpu_seconds, queue, search_past, seconds_of
from tests.support.targets import GOLDEN_COVE, H100, H200, NEOVERSE, ZEN5
from tuner.cost_model.cuda.estimate import CudaDescription
from tuner.cost_model.cuda.history import FEATURE_VERSION as GPU_FEATURES
from tuner.cost_model.cuda.history import CudaPrior
from tuner.cost_model.features import FEATURE_VERSION, featurizer
from tuner.cost_model.metrics import pairwise_accuracy
from tuner.db import cost_models, trials
from tuner.db.engine import Database
from tuner.db.jobs import Job
from tuner.measure.outcome import Conditions, Timed, Trial
from tuner.spaces.by_target import cpu_space, gpu_space
from tuner.workers.jobs.search import searcher_for
from tuner.workers.jobs.transfer import LEAST, WORKLOADS, Start, start_of
from tuner.workload.spec import parse_spec

SMALL, LARGE, OTHER = "matmul:M=64,N=64,K=64", "matmul:M=96,N=64,K=128", "transpose:M=64,N=96"


def start(database: Database, job: Job, spec: str, position: int = 0) -> Start:
    """With time job share still: how long a start may take is no matter of these tests."""
    task = job.tasks[position]
    return start_of(
        database, job=job, task=task, op=parse_spec(spec).op, target=ZEN5, clock=lambda: 0.0
    )


def test_the_first_workload_of_a_target_starts_from_nothing(database: Database) -> None:
    job, _ = queue(database, SMALL)
    assert start(database, job, SMALL) == Start()


def test_other_workloads_teach_an_order_and_give_their_best(
    database: Database, clock: ManualClock
) -> None:
    search_past(database, SMALL, clock)
    search_past(database, OTHER, clock)
    job, _ = queue(database, LARGE)
    started = start(database, job, LARGE)
    assert started.prior is not None
    assert started.learned_from == (parse_spec(SMALL).key, parse_spec(OTHER).key), (
        "of the same operator first"
    )
    space = cpu_space(parse_spec(LARGE), ZEN5, 1)
    rows = featurizer(space)(space.space.sample(np.random.default_rng(5), 200))
    labels = 1e-3 / np.array([seconds_of(row) for row in rows])
    assert pairwise_accuracy(started.prior.predict(rows), labels) > 0.75
    assert len(started.best) == 2 and all(set(config) > {"sketch"} for config in started.best), (
        "of the same operator only"
    )


def test_a_target_without_a_history_starts_from_that_of_other_cpus(
    database: Database, clock: ManualClock
) -> None:
    """Features are those of the machine that each trial was measured on."""
    for machine in (GOLDEN_COVE, NEOVERSE):
        search_past(database, SMALL if machine is GOLDEN_COVE else OTHER, clock, machine=machine)
    job, _ = queue(database, LARGE)
    started = start(database, job, LARGE)
    assert started.prior is not None and len(started.best) == 2
    assert started.learned_from == (parse_spec(SMALL).key, parse_spec(OTHER).key)
    space = cpu_space(parse_spec(LARGE), ZEN5, 1)
    rows = featurizer(space)(space.space.sample(np.random.default_rng(5), 200))
    labels = 1e-3 / np.array([seconds_of(row) for row in rows])
    assert pairwise_accuracy(started.prior.predict(rows), labels) > 0.75
    searcher_for(space, strategy="annealing", seed=0, winners=started.best, prior=started.prior)


def test_what_was_measured_on_the_target_itself_is_all_that_counts_then(
    database: Database, clock: ManualClock
) -> None:
    search_past(database, SMALL, clock, machine=GOLDEN_COVE)
    search_past(database, OTHER, clock)
    job, _ = queue(database, LARGE)
    started = start(database, job, LARGE)
    assert started.learned_from == (parse_spec(OTHER).key,) and started.best == ()


def test_a_gpu_without_a_history_starts_from_that_of_another_gpu(
    database: Database, clock: ManualClock
) -> None:
    """Times are made up: no GPU but one H200 was recorded."""
    search_past(database, SMALL, clock, machine=H200)
    job, _ = queue(database, LARGE, machine=H100)
    started = start_of(
        database, job=job, task=job.tasks[0], op="matmul", target=H100, clock=lambda: 0.0
    )
    assert started.learned_from == (parse_spec(SMALL).key,) and len(started.best) == 2
    assert started.prior is not None
    space = gpu_space(parse_spec(LARGE), H100)
    rows = CudaDescription(space)(space.space.sample(np.random.default_rng(5), 200))
    taught, untaught = (
        pairwise_accuracy(prior.predict(rows), 1e-5 / gpu_seconds(rows))
        for prior in (started.prior, CudaPrior())
    )
    assert taught > 0.9 and taught > untaught + 0.1, (taught, untaught)
    searcher = searcher_for(
        space, strategy="annealing", seed=0, winners=started.best, prior=started.prior
    )
    asked = [space.space.config(point) for point in searcher.ask(12)]
    assert all(dict(config) in asked for config in started.best)
    with database.read() as session:
        stored = cost_models.latest(session, H100.key, GPU_FEATURES)
    assert stored is not None and stored.blob == started.prior.save()


def test_a_warm_search_proposes_the_carried_configs_among_its_first(
    database: Database, clock: ManualClock
) -> None:
    search_past(database, SMALL, clock)
    job, _ = queue(database, SMALL)
    started = start(database, job, SMALL)
    space = cpu_space(parse_spec(SMALL), ZEN5, 1)
    searcher = searcher_for(
        space, strategy="annealing", seed=0, winners=started.best, prior=started.prior
    )
    asked = [space.space.config(point) for point in searcher.ask(12)]
    places = [asked.index(dict(config)) for config in started.best]
    assert places == sorted(places) and places[0] < 8, "the better one first, in turn with others"


def test_a_model_is_stored_once_and_loaded_while_nothing_was_added(
    database: Database, clock: ManualClock
) -> None:
    search_past(database, SMALL, clock)
    job, _ = queue(database, LARGE)
    first, second = start(database, job, LARGE), start(database, job, LARGE)
    assert first.prior is not None and second.prior is not None
    assert first.prior.save() == second.prior.save()
    with database.read() as session:
        stored = cost_models.latest(session, ZEN5.key, FEATURE_VERSION)
    assert stored is not None and stored.blob == first.prior.save() and stored.trained_on > LEAST


def test_a_resumed_job_starts_from_what_it_started_from(
    database: Database, clock: ManualClock
) -> None:
    search_past(database, SMALL, clock)
    job, _ = queue(database, LARGE)
    before = start(database, job, LARGE)
    clock.advance(10.0)
    search_past(database, OTHER, clock)
    after = start(database, job, LARGE)
    assert before.prior is not None and after.prior is not None
    assert after.learned_from == before.learned_from and after.prior.save() == before.prior.save()


def test_tasks_of_the_same_job_learn_from_those_in_front(
    database: Database, clock: ManualClock
) -> None:
    job, lease = queue(database, SMALL, LARGE)
    assert lease is not None
    space = cpu_space(parse_spec(SMALL), ZEN5, 1)
    conditions = Conditions(lane="cpu:1", isolation="none")
    with database.write() as session:
        for number, point in enumerate(
            np.unique(space.space.sample(np.random.default_rng(2), 40), axis=0), 1
        ):
            outcome = Timed(
                samples_s=(1e-3 * number,),
                max_rel_error=0.0,
                conditions=conditions,
                artifact=f"{number:064x}",
            )
            trials.record(
                session,
                lease,
                Trial(number=number, config=space.space.config(point), outcome=outcome),
                position=0,
            )
    assert start(database, job, LARGE, 1).learned_from == (parse_spec(SMALL).key,)
    assert start(database, job, SMALL, 0).learned_from == ()


def test_short_searches_leave_the_places_to_those_that_teach(
    database: Database, clock: ManualClock
) -> None:
    """The first rounds of a model's kernels are many, newer than all else, and teach nothing."""
    search_past(database, SMALL, clock)
    specs = [f"softmax:M=8,N={extent}" for extent in range(8, 8 + WORKLOADS)]
    job, lease = queue(database, *specs, LARGE)
    assert lease is not None
    before = start(database, job, LARGE, WORKLOADS)
    with database.write() as session:
        for position in range(WORKLOADS):
            trials.record(session, lease, timed(1), position=position)
    after = start(database, job, LARGE, WORKLOADS)
    assert after.learned_from == before.learned_from == (parse_spec(SMALL).key,)


def test_other_thread_counts_few_trials_and_lost_configs_teach_nothing(
    database: Database, clock: ManualClock
) -> None:
    search_past(database, SMALL, clock, threads=2)
    search_past(database, OTHER, clock, count=LEAST - 2)
    job, _ = queue(database, LARGE)
    assert start(database, job, LARGE) == Start()


def test_a_damaged_model_is_trained_again(database: Database, clock: ManualClock) -> None:
    search_past(database, SMALL, clock)
    job, _ = queue(database, LARGE)
    good = start(database, job, LARGE)
    with database.write() as session:
        stored = cost_models.latest(session, ZEN5.key, FEATURE_VERSION)
        assert stored is not None
        cost_models.save(
            session,
            target=ZEN5.key,
            feature_version=FEATURE_VERSION,
            blob=b"no model",
            trained_on=1,
            metrics=stored.metrics,
        )
    again = start(database, job, LARGE)
    assert (
        good.prior is not None
        and again.prior is not None
        and again.prior.save() == good.prior.save()
    )


def test_time_bounds_what_is_learned_from(database: Database, clock: ManualClock) -> None:
    search_past(database, SMALL, clock)
    search_past(database, OTHER, clock)
    job, _ = queue(database, LARGE)
    ticks = iter(float(second) for second in range(100))
    started = start_of(
        database,
        job=replace(job),
        task=job.tasks[0],
        op="matmul",
        target=ZEN5,
        clock=lambda: next(ticks),
    )
    assert started.learned_from == (parse_spec(SMALL).key,)

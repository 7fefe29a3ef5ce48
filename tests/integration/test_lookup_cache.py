"""Lookups asked again: the kept answer is sent only while it holds, whoever changes the
database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.database_samples import sample_target
from tests.support.live_service import LiveService, options_for, serving
from tests.support.promotions import promote
from tuner.api.schemas import KernelAnswer
from tuner.client import Client, ServiceError
from tuner.db import kernels, promotions, targets
from tuner.db.engine import Database, open_database
from tuner.db.served import served

WORKLOAD = {"op": "matmul", "params": {"M": 16, "N": 8, "K": 4}}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveService]:
    folder = tmp_path_factory.mktemp("service")
    url = (
        f"sqlite:///{folder}/tuner.sqlite"
        if request.param == "sqlite"
        else str(request.getfixturevalue("postgres_url"))
    )
    with serving(options_for(url, folder, target=None)) as live:
        yield live


@pytest.fixture
def elsewhere(service: LiveService) -> Iterator[Database]:
    """Another process's view of the same database, as an orchestrator has it."""
    opened = open_database(service.options.database_url, create=False)
    yield opened
    opened.close()


def ask(client: Client) -> KernelAnswer:
    """The kernel that a lookup gives."""
    answer = client.lookup(WORKLOAD, prepare=False)
    assert answer.source == "exact" and answer.kernel is not None
    return answer.kernel


def look(client: Client, times: int = 3) -> str:
    """The id that each of several lookups gives."""
    ids = {ask(client).id for _ in range(times)}
    assert len(ids) == 1
    return ids.pop()


def test_promotion_and_rollback_show_in_the_next_answer(
    service: LiveService, elsewhere: Database
) -> None:
    client = service.client(service.key("read"))
    first = promote(service)
    assert look(client) == first
    for _ in range(5):
        newer = promote(service)
        assert look(client) == newer
    with elsewhere.write() as session:
        before = promotions.rollback(session, newer)
    assert before is not None and look(client) == before.id


def test_a_kernel_marked_stale_says_so_until_it_is_validated(
    service: LiveService, elsewhere: Database
) -> None:
    client = service.client(service.key("read"))
    kernel = promote(service)
    assert look(client) == kernel
    with elsewhere.write() as session:
        kernels.mark_stale(session, sample_target().key, "the driver changed")
    assert ask(client).stale == "the driver changed"
    with elsewhere.write() as session:
        kernels.mark_validated(session, kernel)
    assert ask(client).stale is None


def test_a_second_target_makes_what_was_clear_ambiguous(
    service: LiveService, elsewhere: Database
) -> None:
    client = service.client(service.key("read"))
    kernel = promote(service)
    assert look(client) == kernel
    with elsewhere.write() as session:
        targets.remember(session, sample_target("another"))
    with pytest.raises(ServiceError) as caught:
        ask(client)
    assert caught.value.code == "unknown_target"


def test_what_is_served_is_told_by_one_record(service: LiveService) -> None:
    kernel = promote(service)
    with service.database.read() as session:
        stored = kernels.get(session, kernel)
    now = served(service.database, workload=stored.workload, target=stored.target, threads=1)
    assert now is not None and (now.kernel, now.stale, now.job, now.targets) == (
        kernel,
        None,
        None,
        1,
    )
    assert (
        served(service.database, workload=stored.workload, target=stored.target, threads=2) is None
    )

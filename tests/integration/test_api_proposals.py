"""External searchers over REST: the space, batches of configs, and who may propose what."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.live_service import MATMUL, LiveService, options_for, serving
from tests.support.targets import ZEN5
from tuner.client import Client, ServiceError


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    folder = tmp_path_factory.mktemp("service")
    options = options_for(f"sqlite:///{folder}/tuner.sqlite", folder, target=ZEN5)
    with serving(options) as live:
        yield live


@pytest.fixture
def client(service: LiveService) -> Client:
    return service.client(service.key("submit"))


def test_configs_of_the_jobs_space_are_taken_and_completed(client: Client) -> None:
    job = client.submit(MATMUL, strategy="external", trials=10)
    assert job.strategy == "external"
    space = client.space(job.id)
    assert space.size > 1 and space.sketches[0].knobs
    sketch = space.sketches[0]
    whole = {"sketch": sketch.name} | {knob.name: knob.values[-1] for knob in sketch.knobs}
    answer = client.propose(job.id, [{"sketch": sketch.name}, whole], first=0)
    assert (answer.total, answer.closed) == (2, False)
    assert answer.configs[1].items() >= whole.items()
    assert answer.configs[0].items() >= {
        (knob.name, knob.values[0]) for knob in sketch.knobs if not isinstance(knob.values[0], list)
    }
    # A batch that is sent again, and where to go on.
    assert client.propose(job.id, [{"sketch": sketch.name}, whole], first=0).total == 2
    assert client.proposals(job.id, first=1).configs == answer.configs[1:]
    assert client.propose(job.id, [], first=2, close=True).closed
    with pytest.raises(ServiceError, match="closed after 2") as caught:
        client.propose(job.id, [whole | {"sketch": sketch.name}], first=2)
    assert (caught.value.status, caught.value.code) == (409, "proposal_conflict")


def test_what_is_no_point_of_the_space_is_refused_whole(client: Client) -> None:
    job = client.submit(MATMUL, strategy="external", trials=10)
    name = client.space(job.id).sketches[0].name
    for wrong, said in (
        ({"sketch": "none"}, "'sketch' has no value 'none'"),
        ({"sketch": name, "speed": 9}, "unknown knob 'speed'"),
    ):
        with pytest.raises(ServiceError, match=said):
            client.propose(job.id, [{"sketch": name}, wrong], first=0)
    assert client.proposals(job.id).total == 0
    with pytest.raises(ServiceError, match="1 workloads, from 0"):
        client.proposals(job.id, workload=1) and client.space(job.id, workload=1)


def test_only_an_external_jobs_owner_may_propose(service: LiveService, client: Client) -> None:
    external = client.submit(MATMUL, strategy="external", trials=10).id
    own = client.submit(MATMUL, strategy="random", trials=10).id
    with pytest.raises(ServiceError, match="searches by random") as caught:
        client.propose(own, [], first=0)
    assert caught.value.status == 409
    with pytest.raises(ServiceError) as caught:
        service.client(service.key("submit")).propose(external, [], first=0)
    assert caught.value.status == 404
    with pytest.raises(ServiceError) as caught:
        service.client(service.key("read")).propose(external, [], first=0)
    assert caught.value.status in (403, 404)

"""Cold caches and objectives over REST: what a job carries, what a look-up chooses, what is
refused, and what pages show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.browsing import browser
from tests.support.database_samples import sample_kernel, sample_target
from tests.support.live_service import MATMUL, LiveService, options_for, serving
from tuner.client import ServiceError
from tuner.db import jobs, leases, promotions, targets, tradeoffs, workloads
from tuner.workload.spec import parse_spec, to_document


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    folder: Path = tmp_path_factory.mktemp("objectives")
    with serving(options_for(f"sqlite:///{folder}/tuner.sqlite", folder)) as live:
        yield live


@pytest.fixture(scope="module")
def kept(service: LiveService) -> dict[str, str]:
    """Ids of the kernels of one product: the fastest, a small one, the smallest; one of two
    threads with its throughput; a cold one."""
    workload = parse_spec("matmul:M=16,N=8,K=4")
    with service.database.write() as session:
        key = workloads.remember(session, workload, to_document(workload))
        new = jobs.NewJob(
            workloads=(key,), target=targets.remember(session, sample_target()), threads=1, trials=4
        )
        lease = leases.claim(session, jobs.create(session, new)[0].id, owner="test")[1]
        sample = replace(sample_kernel(session), workload=key)

        def sized(median_s: float, workspace: int, code: int) -> promotions.NewKernel:
            return replace(sample, median_s=median_s, workspace_bytes=workspace, code_bytes=code)

        fastest = promotions.promote(session, sized(1e-3, 8192, 900), lease=lease)
        tradeoffs.keep(session, [sized(1.1e-3, 0, 800), sized(2e-3, 0, 200)], lease)
        _, small, smallest = tradeoffs.settle(session, key, sample.target, 1)
        two = promotions.promote(session, replace(sized(6e-4, 8192, 950), threads=2))
        tradeoffs.note_throughput(session, two.id, instances=1, calls_per_s=1600.0)
        cold = promotions.promote(session, replace(sized(3e-3, 0, 700), cache="cold"))
    named = (fastest, small, smallest, two, cold)
    return dict(
        zip(
            ("fastest", "small", "smallest", "two", "cold"),
            [each.id for each in named],
            strict=True,
        )
    )


def test_a_look_up_takes_what_its_objective_chooses(
    service: LiveService, kept: dict[str, str]
) -> None:
    client = service.client(service.key("read"))

    def found(**asked: object) -> str | None:
        answer = client.lookup(MATMUL, prepare=False, **asked)  # type: ignore[arg-type]  # by name
        assert answer.source == "exact" and answer.front is None
        return None if answer.kernel is None else answer.kernel.id

    assert found() == found(objective="time") == kept["fastest"]
    assert found(objective="memory") == kept["small"]
    assert found(objective="code_size") == kept["smallest"]
    assert found(objective="code_size", within=0.2) == kept["small"]
    assert found(objective="throughput") == kept["two"]
    assert found(threads="auto") == kept["two"]
    assert found(cache="cold") == found(cache="cold", objective="memory") == kept["cold"]
    front = client.lookup(MATMUL, objective="time,code_size", prepare=False)
    assert front.front is not None and front.kernel is not None
    assert [each.id for each in front.front] == [
        kept[name] for name in ("fastest", "small", "smallest")
    ]
    assert front.kernel.id == kept["fastest"] and front.loss is None
    assert front.front[1].code_bytes == 800 and front.front[1].state == "tradeoff"


def test_what_was_not_measured_is_no_answer(service: LiveService, kept: dict[str, str]) -> None:
    client = service.client(service.key("read"))
    with pytest.raises(ServiceError, match="energy of a call was measured") as caught:
        client.lookup(MATMUL, objective="energy", prepare=False)
    assert (caught.value.status, caught.value.code) == (422, "not_measured")
    with pytest.raises(ServiceError, match="unknown objective 'speed'") as caught:
        client.lookup(MATMUL, objective="speed", prepare=False)
    assert caught.value.status == 400


def test_a_cold_look_up_never_gets_a_warm_kernel(service: LiveService) -> None:
    client = service.client(service.key("submit"))
    other = {"op": "matmul", "params": {"M": 32, "N": 8, "K": 4}}
    answer = client.lookup(other, cache="cold")
    assert answer.kernel is not None and answer.kernel.cache == "cold", "the cold neighbour"
    assert answer.job is not None and answer.loss is None
    job = client.job(answer.job)
    assert (job.kind, job.cache, job.objective) == ("prepare", "cold", "time")
    assert client.lookup(other).job != answer.job


def test_a_job_carries_its_caches_and_objective(service: LiveService) -> None:
    client = service.client()
    job = client.submit(MATMUL, cache="cold", objective="time,memory")
    assert (job.cache, job.objective) == ("cold", "time,memory")
    plain = client.submit(MATMUL)
    assert (plain.cache, plain.objective) == ("warm", "time")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"objective": "watts"}, "unknown objective 'watts'; it is time, throughput"),
        ({"objective": "throughput"}, "a service measures beside other work"),
        ({"objective": "memory", "target": "cuda:sm_90"}, "not measured; give time or energy"),
        ({"cache": "cold", "target": "cuda:sm_90"}, "is a GPU: only a machine's own CPU"),
        ({"cache": "cold", "target": "cpu:neoverse-n1"}, "is a declared CPU"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    service: LiveService, asked: dict[str, str], message: str
) -> None:
    client = service.client()
    with pytest.raises(ServiceError, match=message) as caught:
        client.submit(MATMUL, **asked)  # type: ignore[arg-type]  # by name
    assert caught.value.status == 400
    with pytest.raises(ServiceError):
        client.submit(MATMUL, cache="tepid")  # type: ignore[arg-type]  # neither of the two


def test_pages_show_sizes_choices_and_caches(service: LiveService, kept: dict[str, str]) -> None:
    with browser(service, service.key("read")) as pages:
        page = pages.get(f"/kernels/{kept['small']}").text
        assert "Choices" in page and page.count('aria-label="Front of time and') == 2
        for name in ("fastest", "small", "smallest"):
            assert f'href="/kernels/{kept[name]}"' in page
        assert "800 B" in page and "tradeoff" in page
        cold = pages.get(f"/kernels/{kept['cold']}").text
        assert "cold caches" in cold and "Choices" not in cold
        assert "1,600 /s" in pages.get(f"/kernels/{kept['two']}").text
        listed = pages.get("/kernels?state=tradeoff").text
        assert kept["small"] in listed and kept["fastest"] not in listed
        assert ">cold</span>" in pages.get("/kernels").text
        form = pages.get("/submit?op=matmul").text
        assert "<option>time,code_size</option>" in form and "<option>cold</option>" in form

"""Champion and canary over REST: listed by their aliases, promoted and withdrawn by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.canaries import champion_and_canary
from tests.support.live_service import LiveService, options_for, serving
from tuner.client import ServiceError


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LiveService]:
    with serving(options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path)) as live:
        yield live


def test_aliases_follow_promotion_and_rollback(service: LiveService) -> None:
    champion, canary = champion_and_canary(service.database)
    reader, admin = (service.client(service.key(scope)) for scope in ("read", "admin"))

    def aliases() -> tuple[list[str], list[str]]:
        champions, canaries = (
            [kernel.id for kernel in reader.kernels(alias=alias)]
            for alias in ("champion", "canary")
        )
        return champions, canaries

    assert aliases() == ([champion], [canary])
    with pytest.raises(ServiceError, match="scope") as caught:
        reader.promote(canary)
    assert caught.value.status == 403
    assert admin.promote(canary).previous == champion
    assert aliases() == ([canary], [])
    with pytest.raises(ServiceError, match="only a canary can be promoted") as caught:
        admin.promote(canary)
    assert caught.value.status == 409
    back = admin.rollback(canary)
    assert back.promoted is not None and back.promoted.id == champion
    assert aliases() == ([champion], [])


def test_a_canary_is_withdrawn_and_its_champion_stays(service: LiveService) -> None:
    champion, canary = champion_and_canary(service.database)
    answer = service.client(service.key("admin")).rollback(canary)
    assert answer.promoted is not None and answer.promoted.id == champion

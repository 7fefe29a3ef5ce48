"""Gradients are on, whatever the tests of rivals, which run in processes of their own
otherwise, have left."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def gradients() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    with torch.enable_grad():
        yield

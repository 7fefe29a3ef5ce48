"""Compiled models as people pass them on: copies, pickles and saved states."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tuner.torch  # noqa: E402
from tuner.torch.backend import Backend  # noqa: E402

nn = torch.nn

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:torch")


def compiled() -> Any:
    torch.manual_seed(0)
    torch._dynamo.reset()
    return torch.compile(nn.Linear(4, 3).eval(), backend="tuner", mode="tune-off")


def test_a_deep_copy_has_parameters_of_its_own() -> None:
    model, x = compiled(), torch.ones(2, 4)
    with torch.no_grad():
        before = model(x)
        twin = copy.deepcopy(model)
        for parameter in twin.parameters():
            parameter.zero_()
        torch.testing.assert_close(model(x), before)
        torch.testing.assert_close(twin(x), torch.zeros(2, 3))


def test_a_compiled_model_can_be_saved_whole() -> None:
    model, x, file = compiled(), torch.ones(2, 4), io.BytesIO()
    with torch.no_grad():
        before = model(x)
        torch.save(model, file)
        file.seek(0)
        torch.testing.assert_close(torch.load(file, weights_only=False)(x), before)


def test_the_backend_is_pickled_by_its_name() -> None:
    backend = tuner.torch.tuner
    assert copy.deepcopy(backend) is backend and copy.copy(backend) is backend
    other = Backend()
    assert copy.deepcopy(other) is other

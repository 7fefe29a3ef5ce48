"""The examples of the OpenAPI document are what they are examples of,."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from tuner.api import lookup_schemas, model_schemas, schemas
from tuner.api.examples import EXAMPLES


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_each_example_is_of_its_type(name: str) -> None:
    modules = {"Lookup": lookup_schemas, "Model": model_schemas}
    module = next((each for noun, each in modules.items() if name.startswith(noun)), schemas)
    model: type[BaseModel] = getattr(module, name)
    written: dict[str, Any] = model.model_validate(EXAMPLES[name]).model_dump(
        mode="json", exclude_unset=True
    )
    assert written == EXAMPLES[name]

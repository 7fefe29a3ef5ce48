"""The OpenAPI document: FastAPI's, with problems, the key scheme and examples added."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from tuner.api.examples import EXAMPLES
from tuner.api.problems import ProblemBody

DESCRIPTION = (
    "Finds fast schedules for tensor kernels: submit workloads, follow their jobs, fetch and "
    "run the winners. "
    "Errors are RFC 9457 problems. Lists end with a cursor, to be given back as `cursor`."
)
TAGS = [
    {"name": "jobs", "description": "Requests to tune, their events and trials"},
    {"name": "kernels", "description": "Promoted winners: explained, downloaded, run, looked up"},
    {"name": "stores", "description": "What other tuners keep here, under keys of their own"},
    {"name": "fleet", "description": "Workers, targets and operators"},
    {"name": "operation", "description": "Health and metrics"},
]
SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "tk_<id>_<secret>",
    "description": "made by `tuner keys create`",
}
UNSECURED = ("/v1/health/",)
# FastAPI's own error schemas, which this service never answers with.
DROPPED = ("HTTPValidationError", "ValidationError")


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of an application, made once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            tags=app.openapi_tags,
            routes=app.routes,
        )
        components = made.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        schemas["ProblemBody"] = ProblemBody.model_json_schema(
            ref_template="#/components/schemas/{model}"
        )
        for name in DROPPED:
            schemas.pop(name, None)
        for name, example in EXAMPLES.items():
            schemas[name]["examples"] = [dict(example)]
        components["securitySchemes"] = {"key": SCHEME}
        for path, item in made["paths"].items():
            for operation in item.values():
                operation["security"] = [] if path.startswith(UNSECURED) else [{"key": []}]
        app.openapi_schema = made
    return app.openapi_schema

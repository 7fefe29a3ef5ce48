"""docker-compose.yml is valid by the Compose Specification, and every service in it is
as confined as docs/explanation/security.md says.

No container engine is needed; where docker-compose is installed, it is asked too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # published without types
import pytest
import yaml  # type: ignore[import-untyped]  # published without types

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_is_valid_by_the_specification() -> None:
    # The schema predates the top-level name, which the specification has since gained.
    document = {key: value for key, value in COMPOSE.items() if key != "name"}
    schema = json.loads((ROOT / "tests/integration/data/compose_spec.json").read_text())
    jsonschema.Draft7Validator(schema).validate(document)


def test_the_schema_would_notice_a_wrong_service() -> None:
    schema = json.loads((ROOT / "tests/integration/data/compose_spec.json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate({"services": {"api": {"imge": "tuner"}}})


@pytest.mark.skipif(
    shutil.which("docker-compose") is None, reason="docker-compose is not installed"
)
def test_docker_compose_accepts_it() -> None:
    subprocess.run(
        ["docker-compose", "-f", "docker-compose.yml", "config", "--quiet"],
        cwd=ROOT,
        check=True,
        timeout=60,
    )


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    user, _, group = str(service["user"]).partition(":")
    assert int(user) > 0 and int(group) > 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"] and "cap_add" not in service
    assert "no-new-privileges:true" in service["security_opt"]
    assert not service.get("privileged") and "network_mode" not in service and "pid" not in service
    assert "healthcheck" in service
    assert not any("docker.sock" in str(volume) for volume in service.get("volumes", []))


def test_only_the_api_is_published_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"api": ["127.0.0.1:8077:8077"]}
    assert COMPOSE["networks"]["backend"]["internal"] is True
    assert all(
        service["networks"] == ["backend"] for name, service in SERVICES.items() if name != "api"
    )


def test_secrets_come_from_files_and_stand_in_no_environment() -> None:
    assert all(set(secret) == {"file"} for secret in COMPOSE["secrets"].values())
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            assert name.endswith("_FILE") or not any(
                word in name for word in ("PASSWORD", "TOKEN", "SECRET")
            ), name
            assert "@" not in str(value) or ":" not in str(value).split("//")[1].split("@")[0], (
                "a password inside a URL"
            )


def test_the_image_is_not_run_as_root() -> None:
    lines = (ROOT / "deploy/Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users[-1:] == ["10001:10001"]

"""All settings with their bounds and defaults, and where each effective value came from.

In order of precedence: a flag or an argument, `TUNER_*` in the environment, the nearest
tuner.toml from the working directory upwards, tuner.toml in the user's configuration
directory, the built-in value.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from tuner.errors import UsageError
from tuner.measure.cache import WARM, Cache
from tuner.measure.objective import FASTEST, Goal, goal_of, objective_choices
from tuner.measure.sandbox.isolation import check_level
from tuner.search.strategies import DEFAULT_STRATEGY, StrategyName
from tuner.workload.workload import ModelNumerics

FILE_NAME = "tuner.toml"
ENVIRONMENT_PREFIX = "TUNER_"
BUILT_IN = "built in"
_USERS = ("XDG_CONFIG_HOME", ".config")  # folder of the user's own settings
# Of a whole model where nobody set any: a first library is to be there within five minutes.
MODEL_SECONDS = 270.0

Auth = Literal["on", "off"]
Switch = Literal["on", "off"]
Policy = Literal["fair", "srtf", "pack", "fifo"]


def _user_folder(variable: str, fallback: str) -> Path:
    """The user's folder, by the XDG base directory specification.

    Relative paths in the environment are ignored, as the specification says.
    """
    named = Path(os.environ.get(variable, ""))
    if named.is_absolute():
        return named / "tuner"
    try:
        return Path.home() / fallback / "tuner"
    except RuntimeError:
        raise UsageError(
            f"this user has no home folder; set HOME, or {variable} to a folder"
        ) from None


def _absolute(path: Path) -> Path:
    """The path from the root; `~` is the user's home. Raises ValueError where there is none."""
    if "\0" in str(path):
        raise ValueError("a path has no NUL character")
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise ValueError(f"{path.parts[0]} is nobody's home; write the path from /") from None


class Settings(BaseSettings):
    """The effective settings. `load_settings` makes them.

    docs/reference/settings.md describes every field.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True
    )

    data_dir: Path = Field(
        default_factory=lambda: _user_folder("XDG_DATA_HOME", ".local/share"),
        description="folder for the default database and the artifacts",
    )
    db: str = Field(
        default_factory=lambda values: f"sqlite:///{values['data_dir'] / 'tuner.db'}",
        min_length=1,
        description="database URL: sqlite:///PATH or postgresql://USER@HOST/NAME",
    )
    artifacts: Path = Field(
        default_factory=lambda values: values["data_dir"] / "artifacts",
        description="folder of compiled kernels, named by the hash of their content",
    )
    target: str = Field(
        default="cpu",
        min_length=1,
        max_length=200,
        description="what to tune for; cpu is this machine",
    )
    microarchitectures: Path | None = Field(
        default=None, description="TOML file of further CPUs that --target cpu:NAME may name"
    )
    device: str = Field(
        default="",
        max_length=2000,
        description="commands that start the agent on devices, separated by semicolons; kernels "
        "for a declared CPU are measured there",
    )
    threads: int = Field(default=1, ge=1, le=1024, description="threads of the kernel")
    trials: int = Field(
        default=256, ge=1, le=1_000_000, description="trials for each workload, trial 0 among them"
    )
    seconds: float = Field(
        default=600.0, ge=1.0, le=2_592_000.0, description="seconds for each workload, at most"
    )
    numerics: ModelNumerics | None = Field(
        default=None,
        description="of a model: whether its kernels may have fast numerics; without a value, "
        "where max_error is set",
    )
    max_error: float | None = Field(
        default=None,
        gt=0.0,
        lt=1.0,
        description="of a model: greatest error of an output, relative to its greatest value",
    )
    strategy: StrategyName = Field(default=DEFAULT_STRATEGY, description="how configs are proposed")
    seed: int = Field(default=0, ge=0, lt=2**63, description="seed of everything random")
    cache: Cache = Field(
        default=WARM,
        description="what timed calls find in the caches: warm, or cold after others' data",
    )
    objective: str = Field(
        default=FASTEST.text,
        max_length=64,
        description=f"what kernels are chosen by: {objective_choices()}; two with a comma for "
        f"their Pareto front",
    )
    builders: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="builder processes; 0 is one for each core that does not measure",
    )
    lanes: str = Field(
        default="",
        max_length=1000,
        description="which cores measure and which build, as lanes=2-3/4-5;builders=0-1; empty "
        "lets the machine's cores decide",
    )
    policy: Policy = Field(
        default="fair", description="whose candidates go first where the service runs several jobs"
    )
    running_jobs: int = Field(
        default=4, ge=1, le=64, description="most jobs the service runs at a time"
    )
    running_per_key: int = Field(
        default=0, ge=0, le=64, description="most of them of one API key; 0 sets no bound"
    )
    lane_share: float = Field(
        default=1.0,
        ge=0.01,
        le=1.0,
        description="most of the lanes' time for the jobs of one API key while others want it",
    )
    build_timeout_s: float = Field(
        default=30.0, ge=0.1, le=3600.0, description="seconds one build may take"
    )
    run_timeout_s: float = Field(
        default=20.0,
        ge=0.1,
        le=3600.0,
        description="seconds one candidate's check and timing may take",
    )
    address: str = Field(
        default="",
        max_length=255,
        description="HOST:PORT of a Ray cluster whose workers are used; empty starts a local one",
    )
    isolation: str = Field(
        default="required",
        min_length=1,
        max_length=100,
        description="how candidates are fenced in: required (all the kernel supports), a level, "
        "or one without a mechanism",
    )
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        max_length=255,
        description="address the service listens on",
    )
    port: int = Field(
        default=8077, ge=0, le=65535, description="port the service listens on; 0 takes a free one"
    )
    auth: Auth = Field(
        default="on",
        description="whether the service asks for keys; off on a loopback address only",
    )
    candidates: Switch = Field(
        default="off",
        description="whether the service takes C sources of callers, compiles and judges them",
    )
    model_gib: float = Field(
        default=2.0,
        ge=0.001,
        le=2.0,
        description="GiB of a model's file that the service takes, at most",
    )
    rerace_days: int = Field(
        default=0,
        ge=0,
        le=3650,
        description="days after which a promoted kernel is raced again, against the libraries "
        "that are installed then; 0 never does",
    )
    canary_races: int = Field(
        default=0,
        ge=0,
        le=100,
        description="races that a new kernel must win as a canary before it takes a promoted "
        "one's place in a service with rerace_days; 0 lets it at once",
    )
    alarm_webhook: str = Field(
        default="",
        max_length=500,
        description="URL that gets a POST for each kernel that lost, or no longer does; empty: "
        "none does",
    )
    keep_days: int = Field(
        default=0,
        ge=0,
        le=36_500,
        description="days that trials, events, runs and timelines are kept after their end; 0 "
        "keeps them",
    )
    keep_trials: int = Field(
        default=0,
        ge=0,
        le=2**53,
        description="trials of the newest finished jobs that are kept; 0 keeps all",
    )
    keep_events: int = Field(
        default=0, ge=0, le=2**53, description="the same of events; 0 keeps all"
    )
    regions_gib: float = Field(
        default=10.0,
        ge=0.0,
        le=2.0**23,
        description="GiB that libraries of compiled PyTorch models and their traces may take; the "
        "longest unused are removed first; 0 keeps all",
    )
    server: str = Field(
        default="",
        max_length=500,
        description="URL of a service that commands are sent to; empty: they work on the database",
    )
    token: SecretStr = Field(
        default=SecretStr(""), description="the key with which commands call the service"
    )

    @field_validator("data_dir", "artifacts")
    @classmethod
    def absolute(cls, path: Path) -> Path:
        """Makes folders independent of the working directory; `~` is the user's home."""
        return _absolute(path)

    @field_validator("microarchitectures")
    @classmethod
    def absolute_file(cls, path: Path | None) -> Path | None:
        return None if path is None else _absolute(path)

    @field_validator("server", "alarm_webhook")
    @classmethod
    def web_address(cls, text: str) -> str:
        if text and not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", text):
            raise ValueError(
                "it must be a URL such as http://127.0.0.1:8077, without a name or password in it"
            )
        return text.rstrip("/")

    @field_validator("objective")
    @classmethod
    def known_objective(cls, text: str) -> str:
        try:
            return goal_of(text).text
        except UsageError as error:
            raise ValueError(str(error)) from error

    @property
    def goal(self) -> Goal:
        return goal_of(self.objective)

    @field_validator("isolation")
    @classmethod
    def known_level(cls, text: str) -> str:
        try:
            check_level(text)
        except UsageError as error:
            raise ValueError(str(error)) from error
        return text

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only the values that `load_settings` merged, because it notes their origins."""
        return (init_settings,)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """Settings with the origins of their values."""

    values: Settings
    # setting -> "flag --x", "environment TUNER_X", a file's path, or "built in"
    origins: Mapping[str, str]
    files: tuple[Path, ...]  # the settings files that were read, nearest first

    @property
    def model_seconds(self) -> float:
        """Seconds of a command on one model, which are fewer where nobody set any."""
        built_in = self.origins["seconds"] == BUILT_IN
        return MODEL_SECONDS if built_in else self.values.seconds


def load_settings(
    given: Mapping[str, Any] | None = None,
    *,
    given_as: str = "flag --{}",
    directory: Path | None = None,
) -> LoadedSettings:
    """The effective settings.

    `given` takes precedence over everything; values of None count as not given.
    `given_as` says how the caller names them; for flags, underscores become dashes.
    Raises UsageError for values out of bounds and for unknown names in a file. The
    message names the setting, its value, its limit and its origin.
    """
    project = _project_file(directory or _working_directory())
    files = tuple(path for path in (project, _user_file()) if path is not None)
    layers: list[tuple[Mapping[str, Any], str]] = [
        ({name: value for name, value in (given or {}).items() if value is not None}, given_as),
        (EnvSettingsSource(Settings)(), "environment " + ENVIRONMENT_PREFIX + "{}"),
        *((_read_file(path), str(path).replace("{", "{{").replace("}", "}}")) for path in files),
    ]
    if project is not None and project != _user_file() and "device" in _read_file(project):
        raise UsageError(
            f"settings file {project} sets device, which is a command: whoever wrote a folder's "
            f"files must not run it; give --device, or set it in {_user_folder(*_USERS)}"
        )
    merged: dict[str, Any] = {}
    origins = {name: BUILT_IN for name in Settings.model_fields}
    for layer, origin in reversed(layers):
        for name, value in layer.items():
            merged[name] = value
            origins[name] = origin.format(_spelled(name, origin))
    try:
        return LoadedSettings(values=Settings(**merged), origins=origins, files=files)
    except ValidationError as error:
        raise UsageError(
            "; ".join(_explain(problem, origins) for problem in error.errors())
        ) from None


def _spelled(name: str, origin: str) -> str:
    """The setting's name as a flag, a variable or a file spells it."""
    if origin.startswith("flag"):
        return name.replace("_", "-")
    return name.upper() if origin.startswith("environment") else name


def _explain(problem: Any, origins: Mapping[str, str]) -> str:
    """One of Pydantic's validation errors as a sentence."""
    name = str(problem["loc"][0])
    message = str(problem["msg"])
    if problem["type"] == "value_error":
        reason = message.removeprefix("Value error, ")
    else:
        reason = "it must be " + message.removeprefix("Input should be ")
    return (
        f"setting {name} is {problem['input']!r} ({origins.get(name, BUILT_IN)}); {reason} "
        f"(see docs/reference/settings.md)"
    )


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UsageError(
            "the working directory was deleted or moved away; change to one that is there, such "
            "as `cd .`"
        ) from error


def _project_file(directory: Path) -> Path | None:
    """The nearest settings file, from a directory upwards."""
    folder = directory.absolute()
    return next(
        (
            path
            for path in (parent / FILE_NAME for parent in (folder, *folder.parents))
            if _is_file(path)
        ),
        None,
    )


def _user_file() -> Path | None:
    try:
        path = _user_folder(*_USERS) / FILE_NAME
    except UsageError:  # no home, so no file in it
        return None
    return path if _is_file(path) else None


def _is_file(path: Path) -> bool:
    """Whether there is such a file; one in a folder that may not be entered is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _read_file(path: Path) -> dict[str, Any]:
    """The values in a settings file. Raises UsageError."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"settings file {path} cannot be read: {error}") from None
    for name in values:
        if name not in Settings.model_fields:
            near = get_close_matches(name, Settings.model_fields, n=1)
            hint = (
                f"did you mean {near[0]!r}?"
                if near
                else "known are " + ", ".join(Settings.model_fields)
            )
            raise UsageError(f"settings file {path} sets {name!r}, which is no setting; {hint}")
    return values

"""The options of `torch.compile(model, backend="tuner", options={…})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from tuner.errors import UsageError
from tuner.settings import Settings, load_settings

Tune = Literal["now", "background", "off"]
TUNE: tuple[Tune, ...] = get_args(Tune)
_OF_SETTINGS = ("seconds", "trials", "threads", "numerics", "max_error", "db", "server")
_NAMES = ("tune", "mode", "freeze", *_OF_SETTINGS)
_MODES = tuple(f"tune-{tune}" for tune in TUNE)
_DEFAULT: Tune = "background"


@dataclass(frozen=True, kw_only=True)
class Options:
    """When regions are tuned, and by which settings."""

    tune: Tune
    freeze: bool = False  # whether regions have the weights of inference as constants
    settings: Settings


def options_from(mode: str | None, given: Mapping[str, Any] | None) -> Options:
    """The options that a user of `torch.compile` gave.

    `mode` is "tune-now", "tune-background" or "tune-off", which may stand among the
    options too, and is short for the option `tune`. Threads are PyTorch's, unless they
    are given. Raises UsageError naming the option, and what is valid.
    """
    options = dict(given or {})
    unknown = [name for name in options if name not in _NAMES]
    if unknown:
        raise UsageError(
            f"{', '.join(map(repr, unknown))} is no option of the backend tuner; valid are "
            f"{', '.join(_NAMES)}"
        )
    tune = options.get("tune")
    mode = mode or options.get("mode")
    if mode is not None:
        if mode not in _MODES:
            raise UsageError(f"mode is {mode!r}; valid are {', '.join(_MODES)}")
        if tune is not None:
            raise UsageError(f"tune is {tune!r} and mode is {mode!r}; give one of them")
        tune = TUNE[_MODES.index(mode)]
    if tune is None:
        tune = _DEFAULT
    if tune not in TUNE:
        raise UsageError(f"tune is {tune!r}; valid are {', '.join(TUNE)}")
    freeze = options.get("freeze", False)
    if not isinstance(freeze, bool):
        raise UsageError(f"freeze is {freeze!r}; valid are True and False")
    settings = {name: options[name] for name in _OF_SETTINGS if name in options}
    settings.setdefault("threads", torch.get_num_threads())
    return Options(
        tune=tune,
        freeze=freeze,
        settings=load_settings(settings, given_as="option {}").values,
    )

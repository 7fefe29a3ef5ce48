"""The platforms there are, by kind of target. A further one is a line here."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.app.platforms.cpu import CpuPlatform
from tuner.app.platforms.cuda import CudaPlatform
from tuner.app.platforms.device import DevicePlatform
from tuner.app.platforms.platform import Platform
from tuner.settings import Settings
from tuner.target.capability import is_declared
from tuner.target.target import Target

HOST = CpuPlatform()  # every machine has it
PLATFORMS: Mapping[str, Platform] = {"cuda": CudaPlatform(), "cpu": HOST}


def platform_of(target: Target) -> Platform:
    """The platform of a target's kind."""
    return PLATFORMS[target.kind]


def measuring_platform(target: Target, settings: Settings) -> Platform:
    """The platform that measures for a target: the settings' devices for a declared CPU."""
    if settings.device and is_declared(target):
        return DevicePlatform(target)
    return platform_of(target)

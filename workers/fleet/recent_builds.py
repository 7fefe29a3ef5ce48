"""What compiler processes have compiled lately, and which of them: a promotion asks for it again.

A promotion wants the candidates that were just timed, with what is stored beside a winner.
They are the same objects, so that nothing but the time of a second compilation is saved. Where
the process was replaced, or has compiled many others since, they are compiled again.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import TYPE_CHECKING

from tuner.spaces.core.space import Config

if TYPE_CHECKING:
    from tuner.workers.backends.backend import CandidateCompiler, CompiledCandidate
    from tuner.workers.fleet.messages import Problem

MOST = 32  # candidates of a process, each with its module: finalists of a dozen kernels
MOST_PLACES = 4096  # candidates of which it is known who built them


def build_key(problem: str, config: Config | None) -> str:
    """A candidate of the problem with this key; no config is the default schedule's."""
    return f"{problem} {json.dumps(config or None, sort_keys=True)}"


class RecentBuilds:
    """The latest candidates of one compiler process, of all its problems."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._compiled: OrderedDict[str, CompiledCandidate] = OrderedDict()

    def compiled(self, compiler: CandidateCompiler, config: Config | None) -> CompiledCandidate:
        """The candidate, compiled now unless it was lately. Raises as `compile` does."""
        key = build_key(compiler.problem.key, config)
        candidate = self._compiled.pop(key, None) or compiler.compile(config)
        self._compiled[key] = candidate
        if len(self._compiled) > self._most:
            self._compiled.popitem(last=False)
        return candidate


class RememberingCompiler:
    """A `CandidateCompiler` that looks at what was compiled lately first."""

    def __init__(self, compiler: CandidateCompiler, recent: RecentBuilds) -> None:
        self._compiler = compiler
        self._recent = recent

    @property
    def problem(self) -> Problem:
        return self._compiler.problem

    def compile(self, config: Config | None) -> CompiledCandidate:
        return self._recent.compiled(self._compiler, config)


class BuildPlaces:
    """Which builder has built each of the latest candidates."""

    def __init__(self, most: int = MOST_PLACES) -> None:
        self._most = most
        self._builders: dict[str, str] = {}

    def note(self, problem: str, config: Config | None, builder: str) -> None:
        self._builders[build_key(problem, config)] = builder
        if len(self._builders) > self._most:
            del self._builders[next(iter(self._builders))]

    def builder(self, problem: str, config: Config | None) -> str:
        """The builder's name; empty where it is not known."""
        return self._builders.get(build_key(problem, config), "")

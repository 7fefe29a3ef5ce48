"""A driver whose builders have no compiler.

Run as `python -m tests.support.driver_without_compiler FD SESSION`.
"""

from __future__ import annotations

import sys

from tuner.workers.fleet.actors import ActorFactory
from tuner.workers.fleet.builder import Builder, LostCompiler
from tuner.workers.fleet.driver import main


class BuilderWithoutCompiler(Builder):
    def describe(self) -> dict[str, int | str]:
        raise LostCompiler("the compiler process did not start: there is no LLVM")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], ActorFactory(builder=BuilderWithoutCompiler))

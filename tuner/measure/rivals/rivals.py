"""Libraries that a user would pick instead, by name.

Each is raced by its fastest route to the workload, and checked like a kernel. It gets
its best case: outputs given where the call takes them, the thread count of the kernel,
memory that malloc keeps.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tuner.errors import UsageError
from tuner.measure.check import Array
from tuner.measure.rivals import numpy_routes, scipy_routes, torch_routes
from tuner.measure.rivals.route import Route
from tuner.workload.workload import Workload

RIVALS: tuple[str, ...] = ("numpy", "scipy", "torch", "onednn")
# Of rivals that come with a module of another name.
_MODULES: Mapping[str, str] = {"onednn": "torch"}
# Libraries choose other algorithms (Winograd, other summation). This bound asks only for the
# same function.
RIVAL_BOUND_FACTOR = 64.0

_TRY_S = 0.03  # spent on each route to find the fastest
_TRIES = 3


class RivalError(UsageError):
    """A rival that cannot race: unknown, not installed, or without a route."""

    code = "rival"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A library with its fastest route."""

    name: str
    route: Route

    def invoke(self, arrays: Sequence[Array]) -> None:
        """Compute once, and write the result to the last of `arrays`."""
        self.route.call()
        arrays[-1][...] = self.route.result()

    def clock(self, number: int, repeat: int) -> Sequence[float]:
        return clock_calls(self.route.call, number, repeat)


def check_rival(name: str) -> None:
    """Raises RivalError for a library that is unknown or not installed.

    Imports nothing.
    """
    if name not in RIVALS:
        raise RivalError(f"unknown rival {name!r}; use default or one of {', '.join(RIVALS)}")
    if importlib.util.find_spec(_MODULES.get(name, name)) is None:
        raise RivalError(
            f"rival {name} is not installed; install the extra: pip install 'tuner[compare]'"
        )


def installed_versions() -> Mapping[str, str]:
    """The version of each library that is installed, by the rival's name. Imports nothing."""
    versions = {}
    for name in RIVALS:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(_MODULES.get(name, name))
    return versions


def open_rival(name: str, workload: Workload, inputs: Sequence[Array], threads: int) -> Rival:
    """Load the library in this process, and pick its fastest route.

    The process should be a fresh one. `inputs` are in the workload's order, and are
    copied. Raises RivalError.
    """
    check_rival(name)
    if name == "numpy" and threads > 1 and importlib.util.find_spec("threadpoolctl") is None:
        raise RivalError(
            f"rival numpy with {threads} threads needs threadpoolctl; install it: pip install "
            f"'tuner[compare]'"
        )
    if workload.op is None:
        raise RivalError(
            f"rival {name} has no route to {workload.spec}: only operators of the "
            f"catalogue have one"
        )
    if len(workload.expression.outputs) != 1:
        raise RivalError(f"rival {name} has no route to {workload.spec}: it has several outputs")
    tensors = workload.expression.inputs
    if name == "onednn" and (len(tensors) < 2 or tensors[1].name not in workload.constants):
        raise RivalError(
            f"rival onednn packs weights ahead, and {workload.spec} has none that are known: "
            f"declare them constant (const=W)"
        )
    _keep_freed_memory()
    build = _ROUTES[name]
    named = {tensor.name: np.array(array) for tensor, array in zip(tensors, inputs, strict=True)}
    shape = workload.expression.tensor(workload.expression.outputs[0]).shape
    routes = build(workload.op, workload.params, named, shape, threads)
    if not routes:
        raise RivalError(f"rival {name} has no route to operator {workload.op}")
    return Rival(name=name, route=fastest(routes))


_ROUTES: Mapping[str, Callable[..., list[Route]]] = {
    "numpy": numpy_routes.routes,
    "scipy": scipy_routes.routes,
    "torch": torch_routes.routes,
    "onednn": torch_routes.prepacked_routes,  # PyTorch's way to it
}


def fastest(routes: Sequence[Route]) -> Route:
    """The route that is fastest here and now; several are tried."""
    if len(routes) == 1:
        return routes[0]
    times: Mapping[str, float] = {route.name: _try(route.call) for route in routes}
    return min(routes, key=lambda route: times[route.name])


def clock_calls(call: Callable[[], object], number: int, repeat: int) -> list[float]:
    """Seconds of a call, the mean of `number` of them, `repeat` times."""
    samples = []
    for _ in range(repeat):
        start = time.perf_counter()
        for _ in range(number):
            call()
        samples.append((time.perf_counter() - start) / number)
    return samples


def _try(call: Callable[[], object]) -> float:
    call()
    samples: list[float] = []
    started = time.perf_counter()
    while len(samples) < _TRIES or time.perf_counter() - started < _TRY_S:
        samples += clock_calls(call, 1, 1)
    return float(np.median(samples))


def _keep_freed_memory() -> None:
    """Keep malloc from giving large blocks back.

    glibc otherwise does after each call, and the next call pays for page faults.
    """
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
    libc.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD

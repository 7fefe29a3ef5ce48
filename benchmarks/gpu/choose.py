"""Which configs are worth carrying to a GPU that cannot build any: the best by a rule of thumb, and some at random beside them.

The rule knows knobs by their form and no operator: large balanced blocks, one to eight warps, enough sums a thread, operands
shared and copied ahead, wide loads where nothing is summed. What it is worth only the GPU tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import log2, prod

import numpy as np

from tuner.errors import IllegalSchedule
from tuner.spaces.cuda import CudaSpace
from tuner.spaces.space import Config, Value

SAMPLED = 3000  # points that the rule orders
RANDOM = 0.25  # share of the carried ones taken without it


def chosen(space: CudaSpace, count: int, rng: np.random.Generator) -> list[Config]:
    """`count` configs that are legal and different, the rule's best first; fewer where the space has no more."""
    points = space.space.sample(rng, SAMPLED)
    configs = {repr(sorted(config.items())): config for config in map(space.space.config, points)}
    ordered = by_turns(sorted(configs.values(), key=cost))
    best = ordered[: count - int(count * RANDOM)]
    rest = ordered[len(best) :]
    order = rng.permutation(len(rest))
    found: list[Config] = []
    for config in [*best, *(rest[place] for place in order)]:
        if len(found) == count:
            break
        try:
            space.program(config)
        except IllegalSchedule:
            continue
        found.append(config)
    return found


def by_turns(configs: Sequence[Config]) -> list[Config]:
    """One of each sketch in turn: what the rule says of one sketch cannot be compared with what it says of another."""
    queues: dict[str, list[Config]] = {}
    for config in configs:
        queues.setdefault(str(config["sketch"]), []).append(config)
    return [config for turn in zip_longest(*queues.values()) for config in turn if config is not None]


def cost(config: Config) -> float:
    """Less is likelier to be fast. Sums over the knobs of the config's own sketch."""
    sketches = {part.split(":")[0] + "." + part.split(":")[1] for part in str(config["sketch"]).split("+")}
    own = {name: value for name, value in config.items() if any(name.startswith(f"{sketch}.") for sketch in sketches)}
    return sum(_knob(name, value) for name, value in own.items())


def _knob(name: str, value: Value) -> float:
    _, sketch, what = name.rsplit(".", 2)
    if what == "tile" and isinstance(value, tuple):
        return {"mma": _squares, "warpgroup": _panels}.get(sketch, _tile)(value)
    if what == "shape" and isinstance(value, tuple):
        rows, threads, lanes, _ = value
        return 0.5 * abs(log2(rows * threads / 256)) + 0.5 * log2(rows) - log2(lanes)
    if what.startswith("fetch"):
        return 2.0 if value == "direct" else 0.5 * (str(value).split()[1] == "1")
    if what == "pipeline":
        return {"async": 0.0, "registers": 1.0}.get(str(value), 2.0)
    if what == "rows" and isinstance(value, str):
        return 0.0 if value == "padded" else 0.5
    return 0.0


def _squares(tile: tuple[int, ...]) -> float:
    rows, columns = tile[0] * tile[1] * 16, tile[2] * tile[3] * 16
    return (
        abs(log2(rows / 128)) + abs(log2(columns / 128)) + 0.5 * abs(log2(tile[4] / 32)) + 0.5 * abs(log2(tile[0] * tile[2] / 4))
    )


def _panels(tile: tuple[int, ...]) -> float:
    down, squares, across, panels, stages = tile
    rows, columns = down * squares * 64, across * panels * 64
    return abs(log2(rows / 128)) + abs(log2(columns / 192)) + 0.5 * abs(log2(down * across / 2)) + 0.3 * abs(stages - 3)


def _tile(tile: tuple[int, ...]) -> float:
    axes = [tile[place : place + 3] for place in range(0, len(tile) - 2, 3)]
    depth = tile[-1] if len(tile) % 3 == 1 else 0
    threads, sums = prod(one[0] for one in axes), prod(one[1] * one[2] for one in axes)
    blocks = sorted(prod(one) for one in axes)
    balance = abs(log2(blocks[-1] / blocks[-2])) if depth and len(blocks) > 1 else 0.0
    aim = 64 if depth else 8
    wide = 0.0 if depth else log2(prod(one[2] for one in axes))
    return abs(log2(threads / 256)) + abs(log2(sums / aim)) + 0.5 * balance + (0.3 * abs(log2(depth / 16)) if depth else -wide)

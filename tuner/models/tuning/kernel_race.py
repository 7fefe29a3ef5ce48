"""The race of kernels inside their model: the best few of each heavy workload, once more.

A promotion times a kernel in a loop of its own, where inputs and constants are warm in
the caches. In the model other kernels come between two calls. So those that were nearly
as fast race again in the assembled library, which holds them all and switches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.export.kernel import ExportKernel
from tuner.export.library import function_of
from tuner.models.arrays import Array
from tuner.models.executors.library_calls import LibraryCalls
from tuner.models.executors.profile import Spent
from tuner.models.graph import Graph
from tuner.models.library.library import ModelNumbers, model_kernel
from tuner.models.workloads import ModelWorkload, workload_of, workloads_of
from tuner.runtime.link import link, toolchain_for
from tuner.scratch import temporary_folder
from tuner.target.target import Target
from tuner.workload.workload import Workload

HEAVY = 0.9  # of the model's time: kernels that make up this much of it race, the largest first
WORTH = 0.01  # of its time inside, which another kernel must save to be chosen
LONGEST_S = 1.5  # of calls, in each of two measurements
_SYMBOL = "raced"
# Seconds of a race: a library of the promoted kernels and those nearly as fast, linked, and
# two processes with their calls.
_RACE_S = 6.0
_KERNEL_S = 0.12  # of the objects of each kernel, packed and renamed
_BYTE_S = 1 / 30e6  # of each byte of constants, which other kernels may pack otherwise
_PART = 0.1  # of a command's time, which a race may take

Others = Mapping[str, Sequence[ExportKernel]]
"""Kernels besides the promoted one, the fastest first, by the workload's key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reselected:
    """A workload whose kernel is another inside the model. Times are of one call there."""

    workload: Workload
    calls: int  # in one call of the model
    promoted: str  # the kernel that was the fastest by itself: "trial 12", "default"
    chosen: str
    promoted_s: float
    chosen_s: float

    @property
    def saved_s(self) -> float:
        """In one call of the model."""
        return self.calls * (self.promoted_s - self.chosen_s)


@dataclass(frozen=True, kw_only=True)
class KernelRace:
    """What the race has shown. Times are medians of calls of the model, taken in turn."""

    raced: int  # workloads with more than one kernel that took part
    changed: tuple[Reselected, ...]  # the largest gain first
    promoted_s: float  # with the promoted kernels
    chosen_s: float
    kernels: Mapping[str, ExportKernel]  # the chosen one of every workload, by key

    @property
    def summary(self) -> str:
        """What was chosen, as a sentence."""
        if not self.changed:
            return f"inside the model no other of {self.raced} raced kernels is faster"
        gain = 1 - self.chosen_s / self.promoted_s
        return (
            f"inside the model {len(self.changed)} of {self.raced} raced kernels are others than "
            f"by themselves; this gains {100 * gain:.1f}%"
        )

    @property
    def document(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "raced": self.raced,
            "promoted_s": self.promoted_s,
            "chosen_s": self.chosen_s,
            "changed": [
                {
                    "workload": each.workload.key,
                    "calls": each.calls,
                    "promoted": each.promoted,
                    "chosen": each.chosen,
                    "promoted_s": each.promoted_s,
                    "chosen_s": each.chosen_s,
                }
                for each in self.changed
            ],
        }


def race_inside(
    graph: Graph,
    kernels: Mapping[str, ExportKernel],
    others: Others,
    target: Target,
    threads: int,
    inputs: Sequence[Array],
    machine: LibraryCalls,
) -> KernelRace | None:
    """Races the kernels of heavy workloads within the model; None where these have no others.

    First all promoted kernels are timed, all second ones, and so on, in turn. Of each
    workload the fastest is chosen. Then all that were chosen are timed against all
    promoted ones, and are dropped where the model is no faster by them. Raises LinkError,
    ModelRefused.
    """
    parts = heavy(graph, kernels, others)
    if not parts:
        return None
    field = _Field(graph, parts, others)
    every = {**kernels, **field.kernels}
    built = model_kernel(
        graph,
        every,
        target,
        threads,
        _SYMBOL,
        ModelNumbers(),
        profiled=True,
        switches=field.switches,
        pack=machine.packed,
    )
    with temporary_folder("tuner-scratch-model-") as folder:
        path = folder / "raced.so"
        path.write_bytes(link("raced", [function_of(built)], toolchain=toolchain_for(target)))

        def timed(choices: Sequence[_Choice]) -> Sequence[Spent]:
            settings = [field.setting(choice) for choice in choices]
            return machine.spent(path, _SYMBOL, inputs, settings, longest_s=LONGEST_S)

        first = timed(field.rounds)
        choice = field.fastest(first)
        before, after = timed([{}, choice]) if choice else (first[0], first[0])
    if after.whole_s >= before.whole_s:
        choice, after = {}, before
    changed = [
        Reselected(
            workload=part.workload,
            calls=part.calls,
            promoted=_name(kernels[key]),
            chosen=_name(others[key][choice[key] - 1]),
            promoted_s=field.inside_s(key, before) / part.calls,
            chosen_s=field.inside_s(key, after) / part.calls,
        )
        for part in parts
        if (key := part.workload.key) in choice
    ]
    return KernelRace(
        raced=len(parts),
        changed=tuple(sorted(changed, key=lambda each: -each.saved_s)),
        promoted_s=before.whole_s,
        chosen_s=after.whole_s,
        kernels={**kernels, **{key: others[key][number - 1] for key, number in choice.items()}},
    )


def race_s(graph: Graph) -> float:
    """Seconds that a race is expected to take."""
    return _RACE_S + len(graph.expressions) * _KERNEL_S + graph.nbytes * _BYTE_S


def is_affordable(races_s: float, seconds: float | None) -> bool:
    """Whether a command of so many seconds should keep these for its races."""
    return seconds is None or races_s <= _PART * seconds


def heavy(graph: Graph, kernels: Mapping[str, ExportKernel], others: Others) -> list[ModelWorkload]:
    """The workloads that take part: those that make up most of the model's time, as far as
    there are other kernels of them."""

    def seconds(part: ModelWorkload) -> float:
        return part.calls * kernels[part.workload.key].median_s

    parts = sorted(workloads_of(graph), key=seconds, reverse=True)
    whole_s, covered_s, chosen = sum(map(seconds, parts)), 0.0, []
    for part in parts:
        if covered_s >= HEAVY * whole_s:
            break
        covered_s += seconds(part)
        if others.get(part.workload.key):
            chosen.append(part)
    return chosen


_Choice = Mapping[str, int]  # by a workload's key the number of its kernel, 0 if it has none here


class _Field:
    """Who takes part. The nodes of a workload are computed by one kernel at a time."""

    def __init__(self, graph: Graph, parts: Sequence[ModelWorkload], others: Others) -> None:
        keys = [part.workload.key for part in parts]
        self._names = {key: [f"{key}/{n}" for n in range(len(others[key]))] for key in keys}
        self._steps = [workload_of(node, graph).key for node in graph.expressions]
        self._others = others
        self.switches = {
            node.outputs[0]: self._names[key]
            for node, key in zip(graph.expressions, self._steps, strict=True)
            if key in self._names
        }

    @property
    def kernels(self) -> dict[str, ExportKernel]:
        """Those that are not promoted, by names of their own."""
        return {
            name: kernel
            for key, names in self._names.items()
            for name, kernel in zip(names, self._others[key], strict=True)
        }

    @property
    def rounds(self) -> list[_Choice]:
        """All promoted kernels, then the first others of each workload, the second, ..."""
        most = max(map(len, self._names.values()))
        return [
            {key: number for key, names in self._names.items() if number <= len(names)}
            for number in range(most + 1)
        ]

    def setting(self, choice: _Choice) -> list[int]:
        return [choice.get(key, 0) for key in self._steps if key in self._names]

    def inside_s(self, key: str, spent: Spent) -> float:
        """Seconds of all nodes of a workload in a call."""
        return sum(
            step for step, other in zip(spent.steps, self._steps, strict=True) if other == key
        )

    def fastest(self, spent: Sequence[Spent]) -> _Choice:
        """The workloads of which another kernel than the promoted one was the fastest."""
        choice = {}
        for key, names in self._names.items():
            seconds = [self.inside_s(key, row) for row in spent[: len(names) + 1]]
            best = min(range(len(seconds)), key=seconds.__getitem__)
            if seconds[best] < (1 - WORTH) * seconds[0]:
                choice[key] = best
        return choice


def _name(kernel: ExportKernel) -> str:
    trial = kernel.provenance.get("trial")
    return f"trial {trial}" if trial else "default"

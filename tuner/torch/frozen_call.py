"""Calls of a region whose weights are constants, as long as they are what they were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tuner.torch.call import RegionCall
from tuner.torch.forks import ProcessLock
from tuner.torch.frozen_graph import Weights, weights_among
from tuner.torch.rebuilding import Function


def given_weights(function: Function, count: int, weights: Weights) -> Function:
    """A function of `count` tensors as one of those that are no weights."""
    places = [number for number in range(count) if number not in weights]
    every: list[Any] = [weights.get(number) for number in range(count)]

    def with_weights(*tensors: Any) -> Any:
        arguments = every.copy()
        for place, tensor in zip(places, tensors, strict=True):
            arguments[place] = tensor
        return function(*arguments)

    return with_weights


@dataclass(frozen=True, kw_only=True)
class _Frozen:
    call: RegionCall
    # Of each its number, and its version and address when it was frozen.
    weights: tuple[tuple[int, torch.Tensor, int, int], ...]
    places: tuple[int, ...]  # of the other inputs

    def has(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether the weights are those that were frozen, and unchanged since."""
        for number, weight, version, address in self.weights:
            if (
                tensors[number] is not weight
                or weight._version != version
                or weight.data_ptr() != address
            ):
                return False
        return True


class FrozenCall:
    """Calls a region whose weights are frozen at its first call.

    Where a call brings other weights, or changed ones, it is the call of the region that takes
    them as inputs. So parts of a model that share a graph, as equal layers do that are compiled
    one by one, have a frozen region for the first of them only.
    """

    def __init__(self, plain: RegionCall, frozen_by: Callable[[Weights], RegionCall]) -> None:
        self.__name__ = plain.__name__
        self._plain, self._frozen_by, self._lock = plain, frozen_by, ProcessLock()
        self._is_decided = False
        self._frozen: _Frozen | None = None

    @property
    def is_pytorch(self) -> bool:
        """Whether PyTorch computes the next call."""
        return (self._plain if self._frozen is None else self._frozen.call).is_pytorch

    def __call__(self, *tensors: Any) -> Any:
        """The region's outputs, a tuple."""
        if not self._is_decided:
            with self._lock:
                if not self._is_decided:
                    self._frozen, self._is_decided = self._freeze(tensors), True
        frozen = self._frozen
        if frozen is None or not frozen.has(tensors):
            return self._plain(*tensors)
        return frozen.call(*[tensors[place] for place in frozen.places])

    def _freeze(self, tensors: Sequence[torch.Tensor]) -> _Frozen | None:
        """None where a region reads no weights, or nothing else."""
        weights = weights_among(tensors)
        if len(weights) in (0, len(tensors)):
            return None
        return _Frozen(
            call=self._frozen_by(weights),
            weights=tuple(
                (number, weight, weight._version, weight.data_ptr())
                for number, weight in weights.items()
            ),
            places=tuple(number for number in range(len(tensors)) if number not in weights),
        )

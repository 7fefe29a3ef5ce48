"""Generated data of Amazon-670K's kind: sparse features, very many classes, few labels.

Each class has some features of its own. A sample has labels, most features of each, and
others that say nothing. Classes are drawn by a power law, as products are bought; their
numbers say nothing of how often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

OWN = 12  # features of a class
SHOWN = 9  # of them those that a sample of the class has
NOISE = 18  # other features of a sample
EXPONENT = 0.8  # of the power law of classes


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Samples of a fixed number of features and labels each."""

    features: NDArray[np.int32]  # (samples, features of one)
    labels: NDArray[np.int32]  # (samples, labels of one), which may repeat

    def __len__(self) -> int:
        return len(self.features)

    def rows(self, which: Any) -> Samples:
        return Samples(features=self.features[which], labels=self.labels[which])


def samples(
    *, classes: int, features: int, labels: int, count: int, seed: int, draw: int
) -> Samples:
    """`count` samples; those of one `seed` share their classes, `draw` chooses among them."""
    rng = np.random.default_rng(seed)
    own = rng.integers(0, features, (classes, OWN), np.int32)
    shares = 1.0 / rng.permutation(np.arange(1, classes + 1)) ** EXPONENT
    rng = np.random.default_rng((seed, draw))
    drawn = rng.choice(classes, (count, labels), p=shares / shares.sum())
    shown = np.argsort(rng.random((count, labels, OWN)), -1)[..., :SHOWN]
    of_labels = np.take_along_axis(own[drawn], shown, -1).reshape(count, -1)
    others = rng.integers(0, features, (count, NOISE), np.int32)
    return Samples(
        features=np.concatenate([of_labels, others], 1).astype(np.int32),
        labels=drawn.astype(np.int32),
    )

"""Probabilities of classes by support vectors, which ONNX's evaluator has otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.ops.aionnxml import op_svm_classifier

Array = np.ndarray[Any, np.dtype[Any]]
_MOST_ITERATIONS = 100


class SVMClassifier(op_svm_classifier.SVMClassifier):  # type: ignore[misc]  # onnx has no types
    """The evaluator's own multiplies other elements of three classes or more than LIBSVM does."""

    def _probabilities(self, scores: Array, class_count_: int) -> Array:
        attributes = self._svm.atts
        shares = 1 / (1 + np.exp(scores * attributes.prob_a + attributes.prob_b))
        shares = np.clip(shares, 1e-7, 1 - 1e-7)
        pairs = np.zeros((class_count_, class_count_), scores.dtype)
        first, second = np.triu_indices(class_count_, 1)
        pairs[first, second], pairs[second, first] = shares, 1 - shares
        return coupled(pairs)


def coupled(pairs: Array) -> Array:
    """The probabilities of classes from those that the first of two is the right one, by the
    iteration of LIBSVM (`multiclass_probability`)."""
    count = len(pairs)
    form = -pairs * pairs.T
    np.fill_diagonal(form, (pairs * pairs).sum(axis=0))
    share = np.full(count, 1 / count, pairs.dtype)
    for _ in range(_MOST_ITERATIONS):
        product = form @ share
        energy = share @ product
        if np.abs(product - energy).max() < 0.005 / count:
            break
        for own in range(count):
            step = (energy - product[own]) / form[own, own]
            energy += step * (step * form[own, own] + 2 * product[own])
            energy /= (1 + step) ** 2
            share[own] += step
            share /= 1 + step
            product = (product + step * form[own]) / (1 + step)
    return share

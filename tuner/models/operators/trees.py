"""Ensembles of decision trees: tables that a scan follows from the roots to the leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tuner.models.graph import Array
from tuner.models.operators.elementwise import is_nan
from tuner.models.operators.scalars import Elem, cast_to, clamp, where
from tuner.models.operators.scans import scan
from tuner.models.operators.values import Value
from tuner.workload.expression import Reducer

MOST_STEPS = 1024  # from a root to a leaf
MOST_SCORES = 1 << 26  # leaves times targets

# How a branch compares an element with its threshold.
COMPARISONS: Mapping[str, Callable[[Elem, Elem], Elem]] = {
    "BRANCH_LEQ": lambda x, threshold: x <= threshold,
    "BRANCH_LT": lambda x, threshold: x < threshold,
    "BRANCH_GTE": lambda x, threshold: x >= threshold,
    "BRANCH_GT": lambda x, threshold: x > threshold,
    "BRANCH_EQ": lambda x, threshold: x.equals(threshold),
    "BRANCH_NEQ": lambda x, threshold: x.differs(threshold),
}


@dataclass(frozen=True, kw_only=True)
class Trees:
    """All nodes of an ensemble in one numbering: its branches, behind them its leaves.

    `true` and `false` are the nodes that branches lead to, `nan` whether an element that is
    NaN goes where a true comparison does.
    """

    roots: Array  # int64, a node for each tree
    features: Array  # int64, for each branch: the column that it compares
    thresholds: Array  # for each branch
    modes: Array  # texts of COMPARISONS, for each branch
    true: Array  # int64, for each branch
    false: Array  # int64, for each branch
    nan: Array  # bool, for each branch
    scores: Array  # [leaves, targets]

    @property
    def branches(self) -> int:
        return len(self.features)

    def check(self, columns: int) -> None:
        """Raises ValueError for places that are none, of rows of so many columns."""
        nodes = self.branches + len(self.scores)
        for name, array, limit in (
            ("features", self.features, columns),
            ("nodes", np.concatenate([self.roots, self.true, self.false]), nodes),
        ):
            if array.size and not (array.min() >= 0 and array.max() < limit):
                raise ValueError(
                    f"its trees name {name} from {array.min()} to {array.max()}, of {limit}"
                )
        wrong = sorted({*self.modes.tolist()} - {*COMPARISONS})
        if wrong:
            raise ValueError(f"has branches of the mode {wrong[0]!r}")

    def steps(self) -> int:
        """The most branches from a root to a leaf. Raises ValueError where that is more than
        MOST_STEPS, as in a circle."""
        reached = np.unique(self.roots)
        for step in range(MOST_STEPS + 1):
            branches = reached[reached < self.branches]
            if not branches.size:
                return step
            reached = np.unique(np.concatenate([self.true[branches], self.false[branches]]))
        raise ValueError(f"has a path of more than {MOST_STEPS} branches")


def tree_scores(x: Value, trees: Trees, reducer: Reducer) -> Value:
    """For each row of x [n, columns] the sum, or the least or greatest, of what its leaf in
    each tree gives each target: [n, targets], of the dtype of x.

    Raises ValueError for trees that are none.
    """
    trees.check(x.shape[1])
    rows, count, targets = x.shape[0], len(trees.roots), trees.scores.shape[1]
    if trees.scores.size > MOST_SCORES:
        raise ValueError(f"has {trees.scores.size} scores of leaves, the limit is {MOST_SCORES}")
    builder, first = x.builder, trees.branches
    places = builder.constant(np.broadcast_to(trees.roots, (rows, count)), "int32")
    if (steps := trees.steps()) > 0:
        (places,), _ = scan(builder, "trees", steps, [], [places], _Step(x, trees))
    scores = builder.constant(trees.scores, x.dtype)
    last = len(trees.scores) - 1

    def leaf(row: Elem, target: Elem, tree: Elem) -> Elem:
        return scores[clamp(cast_to("int64", places[row, tree]) - first, 0, last), target]

    return builder.reduce("leaves", reducer, [rows, targets], [count], leaf, dtype=x.dtype)


class _Step:
    """Goes from each branch to the next node; a leaf stays."""

    def __init__(self, x: Value, trees: Trees) -> None:
        constant = x.builder.constant
        self.x, self.trees = x, trees
        self.features = constant(trees.features, "int32")
        self.thresholds = constant(trees.thresholds, x.dtype)
        self.true, self.false = constant(trees.true, "int32"), constant(trees.false, "int32")
        self.nan = constant(trees.nan)
        self.modes = sorted({*trees.modes.tolist()})
        numbers = np.array([self.modes.index(mode) for mode in trees.modes.tolist()], np.int32)
        self.mode = constant(numbers)

    def __call__(self, places: Value) -> tuple[list[Value], list[Value]]:
        last = self.trees.branches - 1

        def body(row: Elem, tree: Elem) -> Elem:
            place = places[row, tree]
            branch = clamp(cast_to("int64", place), 0, last)
            following = where(self.is_true(row, branch), self.true[branch], self.false[branch])
            return where(place <= last, following, place)

        return [self.x.builder.compute("branch", places.shape, body, dtype="int32")], []

    def is_true(self, row: Elem, branch: Elem) -> Elem:
        """Whether the comparison of a branch holds for a row."""
        column = clamp(cast_to("int64", self.features[branch]), 0, self.x.shape[1] - 1)
        element, threshold = self.x[row, column], self.thresholds[branch]
        result = COMPARISONS[self.modes[0]](element, threshold)
        for number, mode in enumerate(self.modes[1:], 1):
            is_own = self.mode[branch].equals(number)
            result = (is_own & COMPARISONS[mode](element, threshold)) | (~is_own & result)
        if self.trees.nan.any() or "BRANCH_NEQ" in self.modes:
            missing = is_nan(element)
            result = (missing & self.nan[branch]) | (~missing & result)
        return result

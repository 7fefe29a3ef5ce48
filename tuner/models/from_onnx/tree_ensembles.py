"""Ensembles of decision trees, as the domain `ai.onnx.ml` has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tuner.models.from_onnx.class_scores import class_labels, labelled, transformed
from tuner.models.from_onnx.node import Convert, Node, Results
from tuner.models.graph import Array
from tuner.models.operators.elementwise import cast, elementwise, is_inf
from tuner.models.operators.movement import concatenate, reshape
from tuner.models.operators.scalars import where
from tuner.models.operators.trees import COMPARISONS, Trees, tree_scores
from tuner.models.operators.values import Value
from tuner.workload.expression import Reducer

_REDUCERS: Mapping[str, Reducer] = {"SUM": "sum", "AVERAGE": "sum", "MIN": "min", "MAX": "max"}
# By the numbers that TreeEnsemble has for them.
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_MODES = tuple(COMPARISONS)
_MEMBER = len(_MODES)  # the mode of a branch that looks an element up in a set


def matrix(node: Node) -> Value:
    """The rows that a predictor takes, as float32 or float64."""
    x = node[0]
    if x.counts:
        raise node.late_extent()
    if x.rank > 2 or not x.rank:
        raise node.refusal(f"takes a matrix, not {list(x.shape)}")
    rows = reshape(x, [1, x.shape[0]]) if x.rank == 1 else x
    return rows if rows.dtype == "float64" else cast(rows, "float32")


def regressor(node: Node) -> Value:
    """TreeEnsembleRegressor: trees by lists of their nodes."""
    return _predicted(node, str(node.attribute("aggregate_function", "SUM")), "float32")


def ensemble(node: Node) -> Value:
    """TreeEnsemble: branches and leaves apart."""
    number = int(node.attribute("aggregate_function", 1))
    if not 0 <= number < len(_AGGREGATES):
        raise node.refusal(f"has the aggregate_function {number}")
    if node.attribute("post_transform", 0):
        raise node.refusal("transforms its results; only the post_transform 0 has an expression")
    name, targets = _AGGREGATES[number], int(node.attribute("n_targets", 1))
    x = matrix(node)
    return cast(_aggregated(x, _by_leaves(node, targets, _REDUCERS[name]), name), node[0].dtype)


def _predicted(node: Node, name: str, dtype: Any) -> Value:
    if name not in _REDUCERS:
        raise node.refusal(f"has the aggregate_function {name!r}")
    if node.attribute("post_transform", "NONE") != "NONE":
        raise node.refusal("transforms its results; only the post_transform NONE has an expression")
    targets = int(node.attribute("n_targets", 1))
    x = matrix(node)
    scores = _aggregated(x, _by_nodes(node, "target", targets, _REDUCERS[name]), name)
    return cast(_with_base(node, scores, _floats(node, "base_values")), dtype)


def _aggregated(x: Value, trees: Trees, name: str) -> Value:
    scores, count = tree_scores(x, trees, _REDUCERS[name]), len(trees.roots)
    if name == "AVERAGE":
        return elementwise("average", lambda e: e / count, scores)
    if name in ("MIN", "MAX"):  # of targets that no leaf has a score of
        return elementwise("present", lambda e: where(is_inf(e), 0, e), scores)
    return scores


def _with_base(node: Node, scores: Value, base: Array) -> Value:
    if not base.size:
        return scores
    if base.size != scores.shape[1]:
        raise node.refusal(f"has {base.size} base values for {scores.shape[1]} results")
    return elementwise("base", lambda e, b: e + b, scores, _row(scores, base))


def _row(like: Value, numbers: Array) -> Value:
    return like.builder.constant(numbers.reshape(1, -1), like.dtype)


def classifier(node: Node) -> Results:
    """Labels and scores. Of two classes the trees give the score of one; the other's is what
    remains to 1, or has the opposite sign."""
    labels = class_labels(node, "classlabels_int64s")
    transform = str(node.attribute("post_transform", "NONE"))
    x, base = matrix(node), _floats(node, "base_values")
    if labels.size == 2:
        return _binary(node, x, labels, base, transform)
    scores = tree_scores(x, _by_nodes(node, "class", labels.size, "sum"), "sum")
    scores = _with_base(node, scores, base)
    return [labelled(scores, labels), cast(transformed(node, scores, transform), "float32")]


def _binary(node: Node, x: Value, labels: Array, base: Array, transform: str) -> Results:
    weights = _floats(node, "class_weights")
    is_share = bool((weights >= 0).all())
    usual = "NONE" if is_share else "LOGISTIC"
    if base.size > 1 or transform != usual or _ints(node, "class_ids").any():
        kind, ids = "no" if is_share else "some", {*_ints(node, "class_ids").tolist()}
        raise node.refusal(
            f"has two classes, {kind} negative weights, for the classes {sorted(ids)}, {base.size} "
            f"base values and the post_transform {transform}, which runtimes compute differently"
        )
    score = tree_scores(x, _by_nodes(node, "class", 1, "sum"), "sum")
    score = _with_base(node, score, base)
    other = elementwise("other", lambda e: 1 - e if is_share else -e, score)
    pair = concatenate([other, score], 1)
    return [labelled(pair, labels), cast(transformed(node, pair, transform), "float32")]


def _by_nodes(node: Node, kind: str, targets: int, reducer: Reducer) -> Trees:
    """Trees whose nodes are told by the numbers of their tree and in it."""
    modes = np.array(node.attribute("nodes_modes", None) or [])
    trees, ids = _ints(node, "nodes_treeids"), _ints(node, "nodes_nodeids")
    is_leaf = modes == "LEAF"
    branches = np.flatnonzero(~is_leaf)
    order = np.concatenate([branches, np.flatnonzero(is_leaf)])
    _check_lengths(node, "nodes_", len(modes), ("treeids", "nodeids", "truenodeids"))
    _check_lengths(node, "nodes_", len(modes), ("falsenodeids", "featureids"))
    numbers = np.empty(len(modes), np.int64)
    numbers[order] = np.arange(len(modes))
    places = dict(
        zip(zip(trees.tolist(), ids.tolist(), strict=True), numbers.tolist(), strict=True)
    )
    if len(places) != len(modes):
        raise ValueError("two of its nodes have one number")
    if not len(modes):
        raise ValueError("has no trees")

    def places_of(name: str, own: Array) -> Array:
        pairs = zip(trees[own].tolist(), _ints(node, name)[own].tolist(), strict=True)
        return _numbers(places, list(pairs))

    values = _floats(node, "nodes_values")
    missing = _ints(node, "nodes_missing_value_tracks_true")
    nan = missing.astype(bool) if missing.size else np.zeros(len(modes), np.bool_)
    _, firsts = np.unique(trees, return_index=True)
    leaves = int(is_leaf.sum())
    pairs = zip(
        _ints(node, f"{kind}_treeids").tolist(),
        _ints(node, f"{kind}_nodeids").tolist(),
        strict=True,
    )
    rows = _numbers(places, list(pairs)) - len(branches)
    return Trees(
        roots=numbers[firsts],
        features=_ints(node, "nodes_featureids")[branches],
        thresholds=values[branches],
        modes=modes[branches],
        true=places_of("nodes_truenodeids", branches),
        false=places_of("nodes_falsenodeids", branches),
        nan=nan[branches],
        scores=_scores(
            (leaves, targets),
            rows,
            _ints(node, f"{kind}_ids"),
            _floats(node, f"{kind}_weights"),
            reducer,
        ),
    )


def _check_lengths(node: Node, prefix: str, length: int, names: Sequence[str]) -> None:
    for name in names:
        if len(_ints(node, prefix + name)) != length:
            raise ValueError(f"has {length} nodes, and not as many {prefix}{name}")


def _numbers(places: Mapping[tuple[int, int], int], pairs: Sequence[tuple[int, int]]) -> Array:
    missing = [pair for pair in pairs if pair not in places]
    if missing:
        tree, number = missing[0]
        raise ValueError(f"names node {number} of tree {tree}, which is not there")
    return np.array([places[pair] for pair in pairs], np.int64)


def _scores(
    shape: tuple[int, int], rows: Array, targets: Array, weights: Array, reducer: Reducer
) -> Array:
    """What each leaf gives each target; several weights of both are aggregated."""
    if targets.size and not (targets.min() >= 0 and targets.max() < shape[1]):
        raise ValueError(f"has results {targets.min()} to {targets.max()}, of {shape[1]}")
    if rows.size and rows.min() < 0:
        raise ValueError("gives a branch a weight; only leaves have them")
    if not shape[0]:
        raise ValueError("has no leaves")
    neutral = {"sum": 0.0, "min": np.inf, "max": -np.inf}[reducer]
    scores = np.full(shape, neutral)
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[reducer]
    combine.at(scores, (rows, targets), weights)
    return scores


def _by_leaves(node: Node, targets: int, reducer: Reducer) -> Trees:
    """Trees whose branches and leaves have numbers of their own. A branch that looks an
    element up in a set is as many that compare it with a member each."""
    tables = _Branches(node)
    for number, mode in enumerate(tables.modes[:]):
        if mode == _MEMBER:
            tables.spread(number)
    unknown = [mode for mode in tables.modes if not 0 <= mode < len(_MODES)]
    if unknown:
        raise ValueError(f"has branches of the mode {unknown[0]}")
    count = len(tables.modes)
    true, false = (
        np.where(np.array(ends) < 0, count - 1 - np.array(ends), ends).astype(np.int64)
        for ends in (tables.true, tables.false)
    )
    ids, weights = _ints(node, "leaf_targetids"), _floats(node, "leaf_weights")
    return Trees(
        roots=_ints(node, "tree_roots"),
        features=np.array(tables.features, np.int64),
        thresholds=np.array(tables.splits),
        modes=np.array([_MODES[mode] for mode in tables.modes]),
        true=true,
        false=false,
        nan=np.array(tables.nan, np.bool_),
        scores=_scores((len(ids), targets), np.arange(len(ids)), ids, weights, reducer),
    )


class _Branches:
    """The branches of a TreeEnsemble; leaf n is the node -1 - n."""

    def __init__(self, node: Node) -> None:
        self.modes = [int(mode) for mode in _floats(node, "nodes_modes")]
        self.splits = _floats(node, "nodes_splits").tolist()
        self.features = _ints(node, "nodes_featureids").tolist()
        self.true = self._ends(node, "true")
        self.false = self._ends(node, "false")
        missing = _ints(node, "nodes_missing_value_tracks_true").tolist()
        self.nan = missing or [0] * len(self.modes)
        members = _floats(node, "membership_values")
        ends = np.flatnonzero(np.isnan(members))  # a NaN ends each set
        self.sets = [part[~np.isnan(part)].tolist() for part in np.split(members, ends + 1)]
        lengths = {len(each) for each in (self.splits, self.features, self.true, self.false)}
        if lengths | {len(self.nan)} != {len(self.modes)}:
            raise ValueError(f"has {len(self.modes)} branches, and not as much of each attribute")

    def _ends(self, node: Node, side: str) -> list[int]:
        ends, is_leaf = _ints(node, f"nodes_{side}nodeids"), _ints(node, f"nodes_{side}leafs")
        if len(ends) != len(is_leaf):
            raise ValueError(f"has {len(ends)} nodes_{side}nodeids, {len(is_leaf)} of its leafs")
        return [int(end) for end in np.where(is_leaf != 0, -1 - ends, ends)]

    def spread(self, number: int) -> None:
        """Makes a branch with a set one for each member, the first in its place."""
        if not self.sets or not self.sets[0]:
            raise ValueError("looks elements up in sets, and has no members for them")
        first, *others = self.sets.pop(0)
        end, last = self.false[number], number
        self.modes[number], self.splits[number] = _MODES.index("BRANCH_EQ"), first
        for member in others:
            self.false[last] = len(self.modes)
            last = len(self.modes)
            self.modes.append(_MODES.index("BRANCH_EQ"))
            self.splits.append(member)
            self.features.append(self.features[number])
            self.true.append(self.true[number])
            self.false.append(end)
            self.nan.append(self.nan[number])


def _ints(node: Node, name: str) -> Array:
    return np.array(node.attribute(name, None) or [], np.int64)


def _floats(node: Node, name: str) -> Array:
    """Of an attribute that is a list or a tensor, or has a twin that is a tensor."""
    twin = node.attribute(f"{name}_as_tensor", None)
    values = node.attribute(name, None) if twin is None else twin
    return np.array([] if values is None else values, np.float64).reshape(-1)


TABLE: Mapping[str, Convert] = {
    "TreeEnsemble": ensemble,
    "TreeEnsembleClassifier": classifier,
    "TreeEnsembleRegressor": regressor,
}

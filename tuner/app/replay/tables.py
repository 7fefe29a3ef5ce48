"""Recorded tables with the features that a search would see.

Features are not stored with a table. They are computed from workload, target and config.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tuner.cost_model.features import featurizer
from tuner.cost_model.history import Past
from tuner.errors import UsageError
from tuner.replay.t4 import read_t4
from tuner.replay.table import RecordedTable, read_table
from tuner.spaces.by_target import cpu_space
from tuner.target.document import target_from_document
from tuner.workload.spec import from_document

LOOP_NEST, KNOBS = "loop nest", "knobs"  # kinds of features


def open_tables(paths: Sequence[Path]) -> list[RecordedTable]:
    """The tables, with features of the loop nest where the space still has their configs.

    A `.json` file is one of T4. `features_of` tells which features a table has. Raises
    UsageError for a file that is no table, and for two tables with one name.
    """
    tables = [
        read_t4(path) if path.suffix == ".json" else with_features(read_table(path))
        for path in paths
    ]
    names = [table.name for table in tables]
    if len(set(names)) != len(names):
        raise UsageError(
            f"two tables record {max(names, key=names.count)}; compare strategies on one of "
            f"them at a time"
        )
    return tables


def features_of(table: RecordedTable) -> str:
    """The kind of the table's features, LOOP_NEST or KNOBS."""
    return KNOBS if table.features is None else LOOP_NEST


def with_features(table: RecordedTable) -> RecordedTable:
    """The table with features of the loop nest.

    The table itself where spaces have changed since it was recorded: a model then sees
    the values of its knobs.
    """
    if table.features is not None or "target" not in table.notes:
        return table
    target = target_from_document(json.loads(table.notes["target"]))
    space = cpu_space(from_document(table.workload), target, int(table.notes.get("threads", "1")))
    try:
        points = space.space.points_of(table.space, table.points)
    except UsageError:
        return table
    return replace(table, features=featurizer(space)(points))


def past_of_table(table: RecordedTable) -> Past:
    """What transfer learns from a table.

    Raises UsageError for a table without the features of the loop nest.
    """
    if table.features is None:
        raise UsageError(
            f"table {table.name!r} was recorded from another version of its space; record it "
            f"again to learn from it"
        )
    labels = np.zeros(len(table.points), np.float32)
    labels[table.outcomes == 0] = table.optimum_s / table.median_s
    return Past(
        workload=table.name, op=table.workload.get("op"), features=table.features, labels=labels
    )

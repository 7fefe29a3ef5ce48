"""What a recording measures: one config of each description of a sub-lattice, and some
duplicates of these."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.search.record import DUPLICATES, Recording, prepared
from tests.support.targets import host_target
from tuner.cost_model.features import featurizer
from tuner.cost_model.model import Features
from tuner.spaces.by_target import cpu_space
from tuner.workload.spec import parse_spec

SPEC = "matmul:M=64,N=96,K=128"


def recording(folder: Path, *, part: int | None = None, sampled: bool = False) -> Recording:
    return prepared(
        SPEC,
        configs=200,
        sampled=sampled,
        part=part,
        threads=1,
        folder=folder,
        name=None,
        cores=(0, 1),
    )


def described(planned: Recording) -> Features:
    space = cpu_space(parse_spec(SPEC), host_target(), 1)
    return featurizer(space)(space.space.points_of(planned.space, planned.points))


def test_of_a_sublattice_one_config_of_each_description_is_measured_and_some_duplicates(
    tmp_path: Path,
) -> None:
    planned = recording(tmp_path)
    features, measured = described(planned), np.unique(planned.measured_as)
    assert len(planned.points) == planned.space.size
    assert np.array_equal(features, features[planned.measured_as]), (
        "who shares a time shares its description"
    )
    descriptions = len(np.unique(features, axis=0))
    assert descriptions >= 200 and len(measured) == descriptions + min(
        DUPLICATES, len(planned.points) - descriptions
    )


@pytest.mark.parametrize(("part", "sampled", "count"), [(50, False, 50), (None, True, 200)])
def test_parts_and_samples_are_measured_config_by_config(
    tmp_path: Path, part: int | None, sampled: bool, count: int
) -> None:
    planned = recording(tmp_path, part=part, sampled=sampled)
    assert np.array_equal(planned.measured_as, np.arange(count)) and len(planned.points) == count

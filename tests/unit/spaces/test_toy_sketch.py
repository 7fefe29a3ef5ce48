"""docs/how-to/add-a-sketch.md, carried out on a copy of the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import how_to

pytestmark = pytest.mark.slow

# Both orders of loops compute the reference, and the cost model tells them apart.
CHECKED = """
import numpy as np
from tests.support.checked_kernels import check_programs
from tuner.cost_model.features import featurizer
from tuner.spaces.by_target import space_of
from tests.support.targets import host_target
from tuner.workload.spec import parse_spec

workload = parse_spec("matmul:M=8,N=12,K=16")
space = space_of(workload, host_target(), 1)
(knob,) = (knob for knob in space.space.knobs if knob.name == "C.plain.outer_order")
assert knob.values == ((0, 1), (1, 0))
configs = [{"sketch": "C:plain", knob.name: value} for value in knob.values]
check_programs(workload, [space.program(config) for config in configs])
features = featurizer(space)(np.array([space.space.point(config) for config in configs]))
assert np.isfinite(features).all()
assert (features[0] != features[1]).any()
print("checked", len(configs))
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, edited = how_to.carry_out("add-a-sketch.md", tmp_path_factory.mktemp("page"))
    assert set(edited) == {"tuner/spaces/cpu/plain.py", "tuner/spaces/cpu/catalogue.py"}
    return root


def test_its_programs_compute_the_reference_and_are_estimated(source: Path) -> None:
    assert "checked 2" in how_to.run(source, "-c", CHECKED)


def test_the_sketch_keeps_the_contract(source: Path) -> None:
    suite = ("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-k", "128 or 1024")
    assert " passed" in how_to.run(source, *suite, "tests/contracts/test_sketch.py")


def test_the_command_line_lists_it(source: Path) -> None:
    assert "C:plain" in how_to.run(source, "-m", "tuner", "space", "matmul:M=8,N=12,K=16", "--json")

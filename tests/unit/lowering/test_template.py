"""Templates: a user's space collected, applied, compiled, stored, pickled by reference,
searched and checked in one process."""

from __future__ import annotations

import json
import pickle
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tvm import te
from tvm.s_tir import Schedule

import tuner
from tests.support.targets import host_target
from tuner.cost_model.encoding import KnobEncoding
from tuner.errors import IllegalSchedule, UsageError
from tuner.lowering.compiler import compile_stored
from tuner.lowering.template import TemplateSpace, resolve
from tuner.measure.outcome import Timed
from tuner.search.domain import Domain
from tuner.spaces.core.template import Knobs
from tuner.tuning import StopReason

ROOT = Path(tuner.__file__).parent.parent


def product(m: int = 12, n: int = 16, k: int = 8) -> list[te.Tensor]:
    a, b, r = (
        te.placeholder((m, k), name="A"),
        te.placeholder((k, n), name="B"),
        te.reduce_axis((0, k), name="r"),
    )
    return [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


def tiled(schedule: Schedule, knobs: Knobs) -> None:
    i, j, r = schedule.get_loops(schedule.get_sblock("C"))
    outer, inner = schedule.split(j, list(knobs.split("tile_j", 16)))
    schedule.reorder(*knobs.order("order", [i, outer, r]), inner)
    schedule.vectorize(inner)


def sometimes_illegal(schedule: Schedule, knobs: Knobs) -> None:
    block = schedule.get_sblock("C")
    loops = schedule.get_loops(block)
    if knobs.boolean("reduction_in_parallel"):
        schedule.parallel(loops[2])
    knobs.integer("idle", [1, 2])


def changing(schedule: Schedule, knobs: Knobs) -> None:
    if knobs.boolean("first"):
        knobs.boolean("second")


def never_legal(schedule: Schedule, knobs: Knobs) -> None:
    knobs.boolean("any")
    schedule.parallel(schedule.get_loops(schedule.get_sblock("C"))[2])


@pytest.fixture(scope="module")
def space() -> TemplateSpace:
    return TemplateSpace(product(), tiled)


def load(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_call_collects_the_space(space: TemplateSpace) -> None:
    assert [sketch.name for sketch in space.space.combinations] == ["tiled"]
    assert [knob.name for knob in space.space.knobs] == ["sketch", "tile_j", "order"]
    assert space.space.size == 5 * 6
    assert KnobEncoding(space.space)(Domain(space.space).points()).shape[0] == 30
    assert [tensor.name for tensor in space.workload.expression.inputs] == ["A", "B"]


def test_configs_are_applied_to_a_fresh_program_each(space: TemplateSpace) -> None:
    config = {"tile_j": (2, 8), "order": (2, 1, 0)}
    texts = [str(space.schedule(config).mod.script()) for _ in range(2)]
    assert texts[0] == texts[1] and "T.vectorized(8)" in texts[0]
    assert str(space.schedule(json.loads(json.dumps(config))).mod.script()) == texts[0]


def test_the_stored_schedule_replays_without_the_template(space: TemplateSpace) -> None:
    target = host_target()
    for config in ({"tile_j": (4, 4), "order": (0, 2, 1)}, {}):
        compiled = space.compile(config, target, "kernel")
        assert compile_stored(compiled.schedule, target) == compiled.object_code
    assert "sch.vectorize" in space.compile({"tile_j": (4, 4)}, target, "kernel").schedule.text


def test_refusals_of_tvm_are_illegal_schedules() -> None:
    space = TemplateSpace(product(), sometimes_illegal)
    space.compile({"reduction_in_parallel": 0, "idle": 2}, host_target(), "kernel")
    with pytest.raises(IllegalSchedule, match="sometimes_illegal"):
        space.compile({"reduction_in_parallel": 1, "idle": 1}, host_target(), "kernel")


def test_templates_that_are_no_space_are_refused(space: TemplateSpace) -> None:
    with pytest.raises(UsageError, match="first values of its knobs"):
        TemplateSpace(product(), never_legal)
    with pytest.raises(UsageError, match="uses no knob"):
        TemplateSpace(product(), lambda schedule, knobs: None)
    with pytest.raises(UsageError, match="same knobs at every call"):
        TemplateSpace(product(), changing).schedule({"first": 1})
    with pytest.raises(UsageError, match="unknown knob"):
        space.schedule({"tile_k": 1})
    a, b, c = product()
    with pytest.raises(UsageError, match="inputs followed by its outputs"):
        TemplateSpace(te.create_prim_func([a, c, b]), tiled)


def test_a_space_travels_by_reference(space: TemplateSpace) -> None:
    assert space.reference == f"{__name__}:tiled"
    again = pickle.loads(pickle.dumps(space))
    assert again.workload.key == space.workload.key and again.space == space.space
    config = {"tile_j": (8, 2), "order": (0, 1, 2)}
    assert str(again.schedule(config).mod.script()) == str(space.schedule(config).mod.script())


def test_templates_that_cannot_be_imported_do_not_travel() -> None:
    def local(schedule: Schedule, knobs: Knobs) -> None:
        tiled(schedule, knobs)

    with pytest.raises(UsageError, match="cannot be imported"):
        pickle.dumps(TemplateSpace(product(), local))
    for reference in ("nowhere:tiled", "tuner:nothing", "tuner.errors:__name__"):
        with pytest.raises(UsageError, match=r"cannot be imported|not a function"):
            resolve(reference)


def test_the_example_searches_checks_and_times() -> None:
    example = load(ROOT / "examples" / "template.py")
    space = TemplateSpace(example.product(12, 16, 8), example.tiled)
    result = example.search(space, trials=5, seed=3)
    assert result.reason is StopReason.TRIALS and result.trials == 5
    assert all(
        isinstance(trial.outcome, Timed) and trial.outcome.max_rel_error < 1e-5
        for trial in result.best
    )
    assert {trial.number for trial in result.best} == set(range(5))


def test_illegal_configs_are_trials_that_failed(capsys: pytest.CaptureFixture[str]) -> None:
    example = load(ROOT / "examples" / "template.py")
    result = example.search(TemplateSpace(product(), sometimes_illegal), trials=5, seed=1)
    assert result.trials == 5 and len(result.best) == 3
    assert capsys.readouterr().out.count("illegal_schedule") == 2


def test_the_page_s_example_runs() -> None:
    (code,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/how-to/templates.md").read_text(), re.DOTALL
    )
    names: dict[str, object] = {"__name__": "page"}
    exec(compile(code, "docs/how-to/templates.md", "exec"), names)
    space = names["space"]
    assert isinstance(space, TemplateSpace) and space.space.size == np.prod([10, 2, 2])

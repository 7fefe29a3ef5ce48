"""The benchmark for GPUs as far as it goes without one: what is built and carried, and
one clear line where it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu.build import MOST_BYTES, build, carry
from benchmarks.gpu.carried.kernels import Refused, read_module
from benchmarks.gpu.carried.report import table
from benchmarks.gpu.choose import by_turns, chosen
from benchmarks.gpu.models import ModelRace, traced
from benchmarks.gpu.suite import SUITE, Race
from tests.support.gpu_machine import REASON, needs_nvcc
from tests.support.targets import SM_90
from tuner.cost_model.cuda.estimate import CudaEstimate
from tuner.errors import UsageError
from tuner.runtime.cuda_module import unpacked
from tuner.spaces.by_target import gpu_space
from tuner.spaces.core.space import Config
from tuner.workload.spec import parse_spec

# PyTorch traces each of them for about ten seconds: one is enough where others wait for it.
NETWORKS = [
    pytest.param(race, id=race.name, marks=[pytest.mark.long] if number else [])
    for number, race in enumerate(race for race in SUITE if isinstance(race, ModelRace))
]


def built(folder: Path, *, only: tuple[str, ...] = ("softmax",), candidates: int = 2) -> int:
    both, cache = ("sm_80", "sm_90"), folder.parent / "cubins"
    return build(
        folder,
        architectures=both,
        candidates=candidates,
        cache=cache,
        only=only,
        said=lambda text: None,
    )


@needs_nvcc
def test_a_folder_holds_all_that_is_carried(tmp_path: Path) -> None:
    folder = tmp_path / "carried"
    assert 0 < built(folder) < MOST_BYTES
    suite = json.loads((folder / "suite.json").read_text())
    (race,) = suite["races"]
    assert race["kind"] == "softmax" and race["bound"] > 0 and race["bytes"] == 2 * 16384 * 4096 * 4
    for arch in ("sm_80", "sm_90"):
        assert race["built"][arch]
        for candidate in race["built"][arch]:
            data = (folder / candidate["file"]).read_bytes()
            module, (head, cubins) = unpacked(data), read_module(data)
            assert [name for name, _ in cubins] == [arch] and tuple(cubins) == module.cubins
            assert [launch["kernel"] for launch in head["launches"]] == [
                launch.kernel for launch in module.launches
            ]
    # Without torch, or without a GPU, the other half says so in one line.
    if REASON is not None:
        done = subprocess.run(
            [sys.executable, folder / "run.py"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.startswith("error: PyTorch") and done.stderr.count("\n") == 1
    built(folder, candidates=1)  # a folder of ours is made anew


def test_what_cannot_be_built_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no race 'gemm'"):
        built(tmp_path / "x", only=("gemm",))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(UsageError, match="something else"):
        built(tmp_path / "full")
    assert (tmp_path / "full" / "thesis.tex").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "race", [race for race in SUITE if isinstance(race, Race)], ids=lambda race: race.name
)
def test_each_race_has_a_space_and_bars_for_its_architectures(race: Any) -> None:
    workload = race.workload
    space = gpu_space(workload, SM_90)
    assert {"sm_90"} <= set(race.bars) <= {"sm_80", "sm_90"} and space.space.size > 1
    tensor_cores = any(
        ":mma" in sketch.name or ":persistent" in sketch.name for sketch in space.space.combinations
    )
    assert tensor_cores == (race.dtype != "float32" or workload.numerics != "strict")
    given = workload.shapes or workload.params
    assert all(given[name] == value for name, value in race.sizes.items())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # of PyTorch to itself
@pytest.mark.parametrize("race", NETWORKS)
def test_a_network_is_few_kernels_and_carries_no_weights(race: ModelRace) -> None:
    pytest.importorskip("torch")
    graph = traced(race)
    assert not graph.constants and len(graph.nodes) < 200


def test_candidates_are_the_estimates_favourites_and_some_others() -> None:
    space = gpu_space(parse_spec("matmul:M=1024,N=1024,K=1024"), SM_90)
    configs = chosen(space, 8, np.random.default_rng(0))
    assert len({repr(config) for config in configs}) == 8
    costs = CudaEstimate(space)(np.stack([space.space.point(config) for config in configs]))
    assert list(costs[:6]) == sorted(costs[:6])
    assert costs[5] < np.quantile(
        CudaEstimate(space)(space.space.sample(np.random.default_rng(1), 500)), 0.05
    )


def test_sketches_take_turns() -> None:
    configs: list[Config] = [
        {"sketch": name, "knob": number}
        for name, number in (("a", 1), ("a", 2), ("a", 3), ("b", 4))
    ]
    assert [config["knob"] for config in by_turns(configs)] == [1, 4, 2, 3]


def test_a_race_that_fails_is_said_and_the_next_goes_on(tmp_path: Path) -> None:
    """PyTorch of a machine whose GPU breaks at the first use: a race's process ends,
    not the others, and the result says why."""
    (tmp_path / "torch.py").write_text(
        "from types import SimpleNamespace as N\n"
        "def broken(*args, **named): raise RuntimeError('unspecified launch failure')\n"
        "cuda = N(is_available=lambda: True, get_device_capability=lambda: (9, 0), "
        "get_device_name=lambda: 'G')\n"
        "backends = N(cuda=N(matmul=N()), cudnn=N())\n"
        "version, __version__, manual_seed, zeros = N(cuda='13'), '2', print, broken\n"
    )
    races: list[dict[str, Any]] = [
        {"name": name, "spec": f"{name}:M=1", "kind": "any", "built": {"sm_90": []}}
        for name in ("first", "second")
    ]
    (tmp_path / "suite.json").write_text(json.dumps({"compiler": "nvcc", "races": races}))
    carry(tmp_path)
    done = subprocess.run(
        [sys.executable, tmp_path / "run.py"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "result.json").read_text())["races"]
    assert [row["name"] for row in rows] == ["first", "second"]
    assert all(
        row["verdict"] == "failed with status 1: RuntimeError: unspecified launch failure"
        for row in rows
    )
    assert (tmp_path / "result.md").read_text().count("unspecified launch failure") == 2


def test_a_damaged_candidate_is_refused() -> None:
    with pytest.raises(Refused, match="damaged"):
        read_module(b"no module")


def test_the_table_shows_every_race() -> None:
    row = {"name": "softmax", "spec": "softmax:M=2,N=2", "candidates": 3, "wrong": 1}
    timed = row | {
        "kernel_s": 2e-6, "rivals_s": {"torch": 3e-6, "torch.compile max-autotune": 4e-6},
        "ratio": 1.5, "bar": 1.0,
        "tflops": 0.5, "error": 1e-6, "of_copy": 0.9, "verdict": "met",
        "tuned": {"trials": 64, "seconds": 9.6, "kernel_s": 2.5e-6},
    }  # fmt: skip
    document = {
        "gpu": "G", "arch": "sm_90", "date": "2026-01-02", "clocks": "c", "torch": "t",
        "cuda": "13", "compiler": "nvcc",
        "races": [timed, row | {"verdict": "no right candidate", "not_tuned": "no GPU"}],
    }  # fmt: skip
    text = table(document)
    assert (
        "G (sm_90), 2026-01-02" in text
        and "torch, 3.0 µs" in text
        and "90%" in text
        and "| met |" in text
    )
    assert "no right candidate" in text and "2 was not tuned: no GPU" in text
    others = text.split("| race | contender | time |")[1]
    assert [line.split(" | ")[1] for line in others.splitlines()[2:6]] == [
        "kernel", "tuned, 64 trials in 10 s", "torch", "torch.compile max-autotune",
    ]  # fmt: skip

"""A kernel packed for delivery: the same input makes the same bytes, the export is
whole, a signature holds for its key alone."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.archives import unpack
from tests.support.targets import host_target
from tuner.export.manifest import read_manifest
from tuner.export.signature import Signer, signer_at
from tuner.runtime.loader import Library as LoadedLibrary
from tuner.runtime.prepack import prepack_from
from tuner.workers.backends.backend import Packing
from tuner.workers.backends.cpu_compiler import CpuCandidateCompiler
from tuner.workers.fleet.build_server import build
from tuner.workers.fleet.messages import BuildRequest, Library, Problem, Ranked
from tuner.workers.jobs.delivery import SignatureRefused, check_signature, pack, signature
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec

WINNER = Ranked(
    name="default",
    median_s=1e-5,
    ci95_s=(0.9e-5, 1.1e-5),
    max_rel_error=1e-7,
    samples=10,
)


@pytest.fixture(scope="module")
def packing(tmp_path_factory: pytest.TempPathFactory) -> Packing:
    folder = tmp_path_factory.mktemp("built")
    problem = Problem(workload=parse_spec("softmax:M=5,N=7"), target=host_target(), threads=1)
    library = build(
        CpuCandidateCompiler(problem), BuildRequest(number=0, config=None, keep="kept"), folder
    )
    assert isinstance(library, Library)
    object_code = Path(library.path).with_suffix(".o").read_bytes()
    provenance = {"job": "j_1", "trial": 0}
    return Packing(
        problem=problem,
        library=library,
        object_code=object_code,
        winner=WINNER,
        provenance=provenance,
    )


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return signer_at(tmp_path_factory.mktemp("keys") / "signing.key")


def test_the_same_kernel_makes_the_same_archive(packing: Packing, signer: Signer) -> None:
    first = pack(packing, signer)
    assert pack(packing, signer) == first
    assert (
        pack(replace(packing, winner=replace(WINNER, median_s=2e-5, ci95_s=(1e-5, 3e-5)))) != first
    )


def test_the_archive_is_an_export_of_one_function(
    packing: Packing, signer: Signer, tmp_path: Path
) -> None:
    unpack(pack(packing, signer), tmp_path)
    (directory,) = tmp_path.iterdir()
    manifest = read_manifest(directory)
    assert manifest.public_key == signer.public_key and directory.name == packing.library.symbol
    for path, digest in manifest.files.items():
        assert hashlib.sha256((directory / path).read_bytes()).hexdigest() == digest
    (function,) = manifest.functions
    assert (function["median_s"], function["provenance"]["job"]) == (1e-5, "j_1")
    x = np.random.default_rng(1).random((5, 7), np.float32)
    expected = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    output = LoadedLibrary(directory / manifest.library).function(function["symbol"])(x)
    np.testing.assert_allclose(output, expected, rtol=1e-5)


def test_a_kernel_that_packs_constants_is_exported_with_its_pack_function(tmp_path: Path) -> None:
    workload, machine = (
        parse_spec("conv2d:N=1,H=9,W=9,CI=8,CO=16,KH=3,KW=3,pad=1,const=W"),
        host_target(),
    )
    compiler = CpuCandidateCompiler(Problem(workload=workload, target=machine, threads=1))
    space = compiler.space.space
    for seed in range(30):
        config = space.config(space.sample(np.random.default_rng(seed), 1)[0])
        built = build(compiler, BuildRequest(number=1, config=config, keep="kept"), tmp_path)
        assert isinstance(built, Library)
        library: Library = built
        schedule = json.loads(Path(library.path).with_suffix(".json").read_text())
        if schedule["prepack"]:
            break
    object_code, prepack = (
        Path(library.path).with_suffix(".o").read_bytes(),
        prepack_from(schedule["prepack"]),
    )
    packing = Packing(
        problem=compiler.problem,
        library=library,
        object_code=object_code,
        winner=WINNER,
        provenance={},
        prepack=prepack,
    )
    unpack(pack(packing), tmp_path / "out")
    (directory,) = (tmp_path / "out").iterdir()
    rng = np.random.default_rng(1)
    x, w = (
        rng.standard_normal(tensor.shape).astype(np.float32)
        for tensor in workload.expression.inputs
    )
    loaded = LoadedLibrary(directory / read_manifest(directory).library)
    output = loaded.function(next(iter(loaded.signatures)))(x, w)
    expected = evaluate(workload.expression, {"X": x, "W": w})[workload.expression.outputs[0]]
    np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-4)


def test_a_signature_holds_for_its_key_and_artifact_alone(signer: Signer, tmp_path: Path) -> None:
    digest, other = "a" * 64, "b" * 64
    signed = signature(signer, digest)
    check_signature(digest, signed, signer.public_key)
    foreign = signer_at(tmp_path / "other.key")
    for claim, given, key in (
        (other, signed, signer.public_key),
        (digest, signed, foreign.public_key),
        (digest, None, signer.public_key),
        (digest, "c2ln", signer.public_key),
        (digest, "no base64!", signer.public_key),
    ):
        with pytest.raises(SignatureRefused):
            check_signature(claim, given, key)

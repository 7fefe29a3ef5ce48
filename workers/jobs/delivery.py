"""A promoted kernel packed for delivery: the archive of its exported library, with the
numbers of the race it won, signed.

What is signed is the SHA-256 of the bytes as 64 hex digits, so that a signature can be
checked against the store's own name.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tuner.errors import TunerError
from tuner.export.archive import export_archive
from tuner.export.cuda import ExportCudaKernel, cuda_archive
from tuner.export.examples import expected_outputs
from tuner.export.kernel import ExportKernel, TargetName, arguments_of
from tuner.export.signature import SIGNATURE_BYTES, Signer, is_signed
from tuner.runtime.cuda_module import unpacked
from tuner.runtime.prepack import Prepack
from tuner.workers.fleet.messages import Library, Problem, Ranked

EXPECTED_FLOPS = 2e9  # a promotion waits for the reference: a second or two of it
LONGEST_NAME = 64  # characters of a library's name


class SignatureRefused(TunerError):
    """An artifact whose signature is not this service's: it must not be loaded."""

    code = "signature_refused"


@dataclass(frozen=True, kw_only=True)
class Packing:
    """What a winner's export is made of, besides its code."""

    problem: Problem
    library: Library
    object_code: bytes
    winner: Ranked
    provenance: Mapping[str, Any]  # job, trial, trace, versions; JSON values
    prepack: Prepack | None = None  # the function that packs its constants, in the same object


def pack(packing: Packing, signer: Signer | None = None) -> bytes:
    """A .tar.gz of the library that exports this one kernel under the name it was
    measured by. The same input, the same bytes.

    Raises ExportRefused, ExportError and LinkError.
    """
    problem, symbol = packing.problem, packing.library.symbol
    workload, target = problem.workload, problem.target
    name = symbol if len(symbol) <= LONGEST_NAME else f"tuned_{workload.key[:16]}"
    if target.kind == "cuda":
        return cuda_archive([_on_gpu(packing)], name)
    described = ExportKernel(
        workload_key=workload.key,
        op=workload.op,
        params=workload.params,
        notation=workload.notation,
        shapes=workload.shapes,
        expression=workload.expression,
        constants=workload.constants,
        numerics=workload.numerics,
        arguments=arguments_of(workload.expression),
        target=TargetName(key=target.key, kind=target.kind, name=target.name),
        isa=target.isa,
        threads=problem.threads,
        object_code=packing.object_code,
        tvm_symbol=f"__tvm_ffi_{symbol}",
        median_s=packing.winner.median_s,
        ci95_s=packing.winner.ci95_s,
        verified=True,
        max_rel_error=packing.winner.max_rel_error,
        provenance=packing.provenance,
        prepack=packing.prepack,
    )
    expected = expected_outputs(workload.expression, described, most_flops=EXPECTED_FLOPS)
    return export_archive([replace(described, expected=expected)], name, signer=signer)


def _on_gpu(packing: Packing) -> ExportCudaKernel:
    """The kernel, whose code is its packed module, with the numbers of its race."""
    target, winner = packing.problem.target, packing.winner
    return ExportCudaKernel(
        module=unpacked(packing.object_code),
        workload=packing.problem.workload,
        measured={
            "target": {"key": target.key, "kind": target.kind, "name": target.name},
            "isa": list(target.isa),
            "threads": packing.problem.threads,
            "median_s": winner.median_s,
            "ci95_s": list(winner.ci95_s),
            "verified": True,
            "max_rel_error": winner.max_rel_error,
            "provenance": dict(packing.provenance),
        },
    )


def signature(signer: Signer, digest: str) -> str:
    """Of an artifact by its digest: Ed25519, base64."""
    return base64.b64encode(signer.sign(digest.encode("ascii"))).decode("ascii")


def check_signature(digest: str, given: str | None, public_key: str) -> None:
    """Raises SignatureRefused unless the holder of `public_key` signed the artifact of
    this digest."""
    try:
        content = b"" if given is None else base64.b64decode(given, validate=True)
    except (ValueError, binascii.Error):
        content = b""
    if len(content) != SIGNATURE_BYTES or not is_signed(
        digest.encode("ascii"), content, public_key
    ):
        what = "is not signed" if given is None else "carries a signature that is not of the key"
        raise SignatureRefused(
            f"artifact {digest} {what} {public_key}; tune its workload again, or restore the "
            f"key it was signed with"
        )

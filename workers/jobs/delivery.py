"""Packs a promoted kernel for delivery: a signed archive of its exported library.

The signature is over the SHA-256 of the bytes as 64 hex digits, so that it can be checked
against the artifact's name in the store.
"""

from __future__ import annotations

import base64
import binascii

from tuner.errors import TunerError
from tuner.export.signature import SIGNATURE_BYTES, Signer, is_signed
from tuner.workers.backends.backend import Packing
from tuner.workers.backends.table import backend_of

LONGEST_NAME = 64  # characters of a library's name


class SignatureRefused(TunerError):
    """An artifact whose signature is not this service's: it must not be loaded."""

    code = "signature_refused"


def pack(packing: Packing, signer: Signer | None = None) -> bytes:
    """A .tar.gz of the library that exports one kernel, under the name it was measured by.

    The same input gives the same bytes. Raises ExportRefused, ExportError and LinkError.
    """
    problem, symbol = packing.problem, packing.library.symbol
    name = symbol if len(symbol) <= LONGEST_NAME else f"tuned_{problem.workload.key[:16]}"
    return backend_of(problem.target).export(packing, name, signer)


def signature(signer: Signer, digest: str) -> str:
    """The Ed25519 signature of an artifact's digest, in base64."""
    return base64.b64encode(signer.sign(digest.encode("ascii"))).decode("ascii")


def check_signature(digest: str, given: str | None, public_key: str) -> None:
    """Raises SignatureRefused unless the holder of `public_key` signed the digest."""
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

"""Signatures of exports: Ed25519 (RFC 8032) over the exact bytes of the manifest.

The manifest has the hashes of all other files. The private key lies in the user's data
directory; the public key stands in the manifest, as `ed25519:` and 64 hex digits.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from tuner.errors import UsageError
from tuner.export.errors import SigningKeyError

KEY_FILE = "signing.key"  # in the data directory
SIGNATURE_BYTES = 64
LARGEST_KEY_FILE = 4096  # bytes
PUBLIC = re.compile(r"ed25519:[0-9a-f]{64}\Z")


class Signer:
    """A private key. Ed25519 is deterministic: equal bytes get equal signatures."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @property
    def public_key(self) -> str:
        """The public key as `ed25519:` and 64 hex digits."""
        return public_text(self._key.public_key())

    def sign(self, content: bytes) -> bytes:
        """The signature of these bytes, 64 bytes long."""
        return self._key.sign(content)


def signer_at(path: Path) -> Signer:
    """The signer with the key in the file `path`.

    A missing file is made, readable by its owner only. Raises SigningKeyError.
    """
    try:
        if not path.exists():
            _create(path)
        content = _read_private(path)
    except OSError as error:
        raise SigningKeyError(
            f"the signing key {path} cannot be read or made: {error.strerror}"
        ) from error
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SigningKeyError(
            f"{path} is no signing key; move it away, and the next export makes a new one"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningKeyError(
            f"{path} is no Ed25519 key; move it away, and the next export makes one"
        )
    return Signer(key)


def public_text(key: Ed25519PublicKey) -> str:
    """The key as `ed25519:` and 64 hex digits."""
    return f"ed25519:{key.public_bytes_raw().hex()}"


def public_key_of(text: str) -> str:
    """The public key that a user gave: `ed25519:HEX`, or a file with that text or PEM.

    Raises UsageError.
    """
    given = text.strip()
    if PUBLIC.match(given):
        return given
    try:
        with Path(given).open("rb") as file:
            content = file.read(LARGEST_KEY_FILE)
    except (OSError, ValueError) as error:
        message = (
            f"{given[:100]!r} is neither a public key (ed25519: and 64 hex digits) nor a "
            f"file that holds one"
        )
        raise UsageError(message) from error
    written = content.decode("ascii", errors="replace").strip()
    if PUBLIC.match(written):
        return written
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UsageError(
            f"{given} holds no public key; it has ed25519: and 64 hex digits, or PEM"
        ) from error
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"{given} holds a public key of another kind than Ed25519")
    return public_text(key)


def is_signed(content: bytes, signature: bytes, public_key: str) -> bool:
    """Whether the holder of `public_key`, which must match PUBLIC, signed these bytes."""
    try:
        Ed25519PublicKey.from_public_bytes(
            bytes.fromhex(public_key.removeprefix("ed25519:"))
        ).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


def _create(path: Path) -> None:
    """Makes a key file, whole or not at all, and never over an existing one.

    Two first exports at the same time end up with one key.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    pem = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    # Readable by its owner only.
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)


def _read_private(path: Path) -> bytes:
    """The bytes of a plain file that only its owner may read. Raises SigningKeyError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SigningKeyError(f"{path} is no plain file; a signing key is one")
        if status.st_mode & 0o077:
            raise SigningKeyError(
                f"others may read the signing key {path} (mode {status.st_mode & 0o777:o}); run: "
                f"chmod 600 {path}"
            )
        return os.read(descriptor, LARGEST_KEY_FILE)
    finally:
        os.close(descriptor)

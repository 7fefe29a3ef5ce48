"""Signatures of exports: made, checked, and refused where anything was changed, taken
away or put there by somebody else."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tuner.errors import UsageError
from tuner.export.directory import check_replaceable
from tuner.export.errors import ManifestError, SigningKeyError
from tuner.export.kernel import ExportKernel
from tuner.export.library import export_library
from tuner.export.manifest import verify_hashes
from tuner.export.signature import Signer, is_signed, public_key_of, signer_at
from tuner.runtime.toolchain import Toolchain

# The first test vector of RFC 8032, section 7.1.
SECRET = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
PUBLIC = "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
SIGNATURE = (
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
    "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
)
SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(SECRET)))
OTHER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))


@pytest.fixture(scope="module")
def exported(
    tmp_path_factory: pytest.TempPathFactory,
    kernel: Callable[..., ExportKernel],
    toolchain: Toolchain,
) -> Path:
    directory = tmp_path_factory.mktemp("signed") / "kit"
    export_library([kernel()], directory, "kit", toolchain=toolchain, signer=SIGNER)
    return directory


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def change(directory: Path, **changes: object) -> None:
    path = directory / "manifest.json"
    document = json.loads(path.read_text()) | changes
    path.write_text(
        json.dumps({name: value for name, value in document.items() if value is not None})
    )


def test_the_rfcs_vector() -> None:
    assert SIGNER.public_key == PUBLIC and SIGNER.sign(b"").hex() == SIGNATURE
    assert is_signed(b"", bytes.fromhex(SIGNATURE), PUBLIC)
    assert not is_signed(b"x", bytes.fromhex(SIGNATURE), PUBLIC)
    assert not is_signed(b"", b"", PUBLIC)
    assert not is_signed(b"", bytes.fromhex(SIGNATURE), OTHER.public_key)


def test_what_was_signed_verifies(exported: Path) -> None:
    assert verify_hashes(exported).public_key == PUBLIC
    assert verify_hashes(exported, public_key=PUBLIC).name == "kit"
    assert len((exported / "manifest.sig").read_bytes()) == 64
    check_replaceable(exported)


def test_the_same_key_gives_the_same_bytes(
    exported: Path, tmp_path: Path, kernel: Callable[..., ExportKernel], toolchain: Toolchain
) -> None:
    export_library([kernel()], tmp_path / "again", "kit", toolchain=toolchain, signer=SIGNER)
    for name in ("manifest.json", "manifest.sig"):
        assert (tmp_path / "again" / name).read_bytes() == (exported / name).read_bytes()


def test_another_program_agrees(exported: Path, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(PUBLIC[8:]))
    pem = tmp_path / "key.pem"
    pem.write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(pem), "-rawin"]
    command += ["-in", str(exported / "manifest.json"), "-sigfile", str(exported / "manifest.sig")]
    done = subprocess.run(command, capture_output=True, check=False, timeout=30)
    assert done.returncode == 0, done


def test_a_changed_manifest_is_refused(copy: Path) -> None:
    path = copy / "manifest.json"
    path.write_text(path.read_text().replace("1e-06", "1e-07"))
    with pytest.raises(ManifestError, match="is not the signature of"):
        verify_hashes(copy)


@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"\0" * 65, b"x"])
def test_a_changed_signature_is_refused(copy: Path, content: bytes) -> None:
    (copy / "manifest.sig").write_bytes(content)
    with pytest.raises(ManifestError, match="is not the signature of"):
        verify_hashes(copy)


def test_a_missing_or_linked_signature_is_refused(copy: Path, exported: Path) -> None:
    (copy / "manifest.sig").unlink()
    with pytest.raises(ManifestError, match="it was signed by"):
        verify_hashes(copy)
    (copy / "manifest.sig").symlink_to(exported / "manifest.sig")
    with pytest.raises(ManifestError, match="is a link"):
        verify_hashes(copy)


def test_signed_anew_by_another_it_passes_only_where_nobody_asked_who(copy: Path) -> None:
    change(copy, public_key=OTHER.public_key)
    (copy / "manifest.sig").write_bytes(OTHER.sign((copy / "manifest.json").read_bytes()))
    assert verify_hashes(copy).public_key == OTHER.public_key
    with pytest.raises(ManifestError, match="not by ed25519:d75a"):
        verify_hashes(copy, public_key=PUBLIC)


def test_without_a_signature_it_passes_only_where_nobody_asked(copy: Path) -> None:
    change(copy, public_key=None)
    with pytest.raises(ManifestError, match="signs nothing"):
        verify_hashes(copy)
    (copy / "manifest.sig").unlink()
    assert verify_hashes(copy).public_key is None
    with pytest.raises(ManifestError, match="is not signed"):
        verify_hashes(copy, public_key=PUBLIC)


@pytest.mark.parametrize(
    "key", ["", 3, "ed25519:", "ed25519:" + "0" * 63, "rsa:" + "0" * 64, PUBLIC + "\n"]
)
def test_a_malformed_public_key_is_refused(copy: Path, key: object) -> None:
    change(copy, public_key=key)
    with pytest.raises(ManifestError, match="public_key must be"):
        verify_hashes(copy)


def test_the_manifest_may_not_list_its_own_signature(copy: Path) -> None:
    files = json.loads((copy / "manifest.json").read_text())["files"]
    change(copy, files={**files, "manifest.sig": "0" * 64})
    with pytest.raises(ManifestError, match="no path inside"):
        verify_hashes(copy)


def test_the_key_is_made_once_and_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "data" / "signing.key"
    with ThreadPoolExecutor(8) as pool:
        keys = {signer.public_key for signer in pool.map(signer_at, [path] * 8)}
    assert len(keys) == 1 and signer_at(path).public_key in keys
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["signing.key"]


def test_a_key_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    signer_at(path)
    path.chmod(0o644)
    with pytest.raises(SigningKeyError, match="chmod 600"):
        signer_at(path)


def test_what_is_no_key_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    rsa = generate_private_key(65537, 2048).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    for content in (b"", b"garbage", rsa):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(SigningKeyError, match=r"no .*key"):
            signer_at(path)
        assert path.read_bytes() == content
    with pytest.raises(SigningKeyError, match="no plain file"):
        signer_at(tmp_path)
    with pytest.raises(SigningKeyError, match="cannot be read or made"):
        signer_at(path / "below" / "a file")


def test_public_keys_as_users_give_them(tmp_path: Path) -> None:
    text, pem = tmp_path / "key.txt", tmp_path / "key.pem"
    text.write_text(PUBLIC + "\n")
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(PUBLIC[8:]))
    pem.write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    assert {public_key_of(given) for given in (PUBLIC, f" {PUBLIC} ", str(text), str(pem))} == {
        PUBLIC
    }
    text.write_text("hello")
    for wrong in ("", "ed25519:xyz", str(tmp_path / "nowhere"), str(text), str(tmp_path), "a\0b"):
        with pytest.raises(UsageError):
            public_key_of(wrong)

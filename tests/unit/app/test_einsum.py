"""`tuner.einsum`: NumPy's answers without a kernel, and the database's kernel where it has one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tuner
from tuner.app.einsum import Einsum

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
import numpy as np
import tuner
from tuner.app.einsum import einsum
random = np.random.default_rng(0)
a, b = random.standard_normal((6, 5)).T, random.standard_normal((6, 7))
options = {"tune": sys.argv[1], "threads": 1}
first = tuner.einsum("ij,jk->ik", a, b, threads=1)
again = tuner.einsum("ij,jk->ik", a, b, trials=2, seconds=20, **options)
np.testing.assert_allclose(first, np.einsum("ij,jk->ik", a, b), rtol=1e-12)
np.testing.assert_allclose(again, first, rtol=1e-12)
print(len(einsum._without))
"""


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path))


def test_without_a_kernel_it_is_numpys() -> None:
    random, einsum = np.random.default_rng(0), Einsum()
    a, b, c = (random.standard_normal((4, 4)) for _ in range(3))
    for subscripts, operands in (
        ("ij,jk", [a, b]), ("ij,jk,kl->li", [a, b.T, c[::-1]]), ("ii", [a]), ("ij,ij->", [a, b]),
        ("ij,jk", [a.astype(np.int64), b]), ("ij,jk", [a + 1j, b]), ("ij,j", [a[:0], b[0]]),
    ):  # fmt: skip
        right = np.einsum(subscripts, *operands)
        for _ in range(2):
            result = einsum(subscripts, *operands)
            np.testing.assert_allclose(result, right, rtol=1e-12)
            assert result.dtype == right.dtype and result.shape == right.shape
    np.testing.assert_array_equal(tuner.einsum("i,i", [1, 2], [3, 4]), 11)


def test_bad_options_are_refused() -> None:
    with pytest.raises(tuner.UsageError, match="tune is 'later'; valid are now, off"):
        Einsum()("i,i", [1.0], [2.0], tune="later")  # type: ignore[arg-type]
    with pytest.raises(tuner.UsageError, match="trials is 0"):
        Einsum()("i,i", [1.0, 3.0], [2.0, 4.0], trials=0)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_kernel_is_tuned_and_found_again(tmp_path: Path) -> None:
    for tune, without in (("off", "1"), ("now", "0"), ("off", "0")):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, tune],
            env={
                "PYTHONPATH": str(ROOT),
                "PATH": "/usr/bin:/bin:/usr/local/bin",
                "HOME": str(tmp_path),
                "TUNER_DATA_DIR": str(tmp_path),
            },
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [without]

"""Sparse matrices as parameters: what is read of them, and which distributions they are like."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from tuner.app.workloads import as_workload
from tuner.cli.workloads import read_workloads
from tuner.errors import UsageError, WorkloadError
from tuner.workload.expression import Lengths, Spread
from tuner.workload.inputs import make_inputs
from tuner.workload.pattern_files import read_pattern
from tuner.workload.patterns import Pattern, compressed, pattern_of, spec_of_pattern
from tuner.workload.spec import parse_spec
from tuner.workload.workload import Workload


def drawn(lengths: str, spread: str, seed: int = 5) -> Pattern:
    spec = f"spmm:M=900,N=800,K=4,density=0.01,lengths={lengths},spread={spread}"
    arrays = make_inputs(parse_spec(spec).expression, seed)
    return compressed((900, 800), arrays["P"], arrays["J"], "float32")


def on(spec: str, matrix: Any) -> Workload:
    return as_workload(spec, shapes=None, constants=(), numerics="strict", pattern=matrix)


@pytest.mark.parametrize("lengths", get_args(Lengths))
@pytest.mark.parametrize("spread", ["uniform", "banded", "power_law", "runs"])
def test_a_drawn_pattern_is_like_its_distributions(lengths: Lengths, spread: Spread) -> None:
    params = on("spmm:K=4", drawn(lengths, spread)).params
    assert (params["lengths"], params["spread"]) == (lengths, spread)
    assert (params["M"], params["N"], params["K"]) == (900, 800, 4)


@pytest.mark.parametrize("op", ["spmv:", "spmm:K=3,", "sddmm:K=3,"])
def test_kernels_take_the_very_matrix(op: str) -> None:
    pattern = drawn("uniform", "uniform")
    expression = on(op.rstrip(",:"), pattern).expression
    assert expression.tensor("J").shape == (pattern.places,)


def test_what_the_spec_says_itself_counts() -> None:
    pattern = drawn("uniform", "uniform")
    said = on("spmv:lengths=equal,dtype=bfloat16", pattern).params
    assert (said["lengths"], said["spread"], said["dtype"]) == ("equal", "uniform", "bfloat16")
    with pytest.raises(WorkloadError, match="M is given by the pattern") as caught:
        on("spmv:M=3", pattern)
    assert caught.value.parameter == "M"


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_matrices_of_scipy_and_pytorch_say_the_same() -> None:
    scipy = pytest.importorskip("scipy.sparse")
    matrix = scipy.random(40, 30, 0.1, "coo", np.float64, random_state=0)
    assert pattern_of(matrix).dtype == "float64"
    spec = spec_of_pattern("spmm:K=4", matrix)
    assert parse_spec(spec).params["density"] == matrix.nnz / 1200
    torch = pytest.importorskip("torch")
    rows = matrix.tocsr()
    parts = map(torch.from_numpy, (rows.indptr, rows.indices, rows.data))
    same = torch.sparse_csr_tensor(*parts, size=rows.shape, check_invariants=True)
    assert spec_of_pattern("spmm:K=4", same) == spec


def test_what_is_no_pattern_is_refused() -> None:
    columns = np.array([0, 1])
    with pytest.raises(WorkloadError, match="a SciPy sparse matrix or a PyTorch tensor"):
        pattern_of(np.eye(3))
    with pytest.raises(WorkloadError, match="has no places"):
        compressed((2, 2), np.array([0, 0, 0]), np.array([], np.int32), "float32")
    for pointers in ([0, 2], [0, 2, 1], [1, 1, 2], [0, 1, 3]):
        with pytest.raises(WorkloadError, match="are not those of 2 rows and 2 columns"):
            compressed((2, 2), np.array(pointers), columns, "float32")
    with pytest.raises(WorkloadError, match="not those of 2 rows and 1 columns"):
        compressed((2, 1), np.array([0, 1, 2]), columns, "float32")
    with pytest.raises(WorkloadError, match="matmul takes no pattern; spmv, spmm and sddmm do"):
        on("matmul:K=4", drawn("uniform", "uniform"))
    with pytest.raises(UsageError, match="the sparse matrix of a spec"):
        on("kernel k(A: f32[4]) -> (B: f32[4]) { B[i] = A[i] }", drawn("uniform", "uniform"))


MATRIX = """%%MatrixMarket matrix coordinate real symmetric
% a comment
4 4 3
1 1 2.5
3 1 -1e3
4 3 7
"""


def array_file(header: bytes) -> bytes:
    """An .npy file with this header and nothing behind it."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


def zip_of(header: bytes) -> bytes:
    """An .npz with SciPy's fields, of which the first has this header."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in ("format", "shape", "data", "indices", "indptr"):
            archive.writestr(f"{name}.npy", array_file(header))
    return content.getvalue()


def test_files_of_matrix_market_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.mtx"
    path.write_text(MATRIX)
    pattern = read_pattern(path)
    assert pattern.pointers.tolist() == [0, 2, 2, 4, 5]
    assert pattern.columns.tolist() == [0, 2, 0, 3, 2]
    (workload,) = read_workloads([f"spmv:pattern={path}"], None, None)
    assert workload.params["density"] == 5 / 16


def test_files_of_scipy_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(
        path,
        format=np.array(b"csr"),
        shape=np.array([2, 3]),
        data=np.ones(2),
        indices=np.array([1, 0], np.int32),
        indptr=np.array([0, 1, 2], np.int32),
    )
    pattern = read_pattern(path)
    assert (pattern.shape, pattern.index, pattern.dtype) == ((2, 3), "int32", "float64")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "is neither .npz .* nor .mtx"),
        ("a.npz", b"no zip", "a.npz: "),
        ("a.mtx", b"%%MatrixMarket matrix array real general\n", "no sparse matrix"),
        ("a.mtx", MATRIX.replace("4 4 3", "4 4 9").encode(), "3 places, where 9 are announced"),
        ("a.mtx", MATRIX.replace("4 4 3", "3 3 3").encode(), "a place outside of 3 rows"),
        ("a.mtx", MATRIX.replace("4 4 3", "4 x 3").encode(), "invalid literal"),
        ("a.mtx", MATRIX.replace("4 4 3", "4 4").encode(), "a.mtx: "),
        ("a.mtx", MATRIX.replace("4 4 3", "-4 4 3").encode(), "extents are 1 to 2147483647"),
        ("a.mtx", MATRIX.replace("4 4 3", f"{10**15} 4 3").encode(), "extents are 1 to"),
        ("a.mtx", MATRIX.replace("4 4 3", f"4 4 {10**15}").encode(), "the limit is 8 GiB"),
        ("a.mtx", MATRIX.replace("4 4 3", f"4 4 {10**6}").encode(), "3 places, where 1000000"),
        ("a.npz", b"", "a.npz: "),
        ("a.npz", array_file(b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}"), "a.npz"),
        ("a.npz", zip_of(b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}"), "a.npz"),
        ("a.npz", zip_of(b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d,)}" % 10**17),
         "a.npz"),
        ("a.npz", zip_of(b"{'descr': '<f8', 'fortran_order': ((("), "a.npz"),
    ],
    ids=lambda part: "" if isinstance(part, bytes) else part,  # archives have the time in them
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match=message) as caught:
        read_workloads([f"spmv:pattern={path}"], None, None)
    assert caught.value.parameter == "pattern"


def test_an_operator_without_places_is_refused_whatever_extents_it_has(tmp_path: Path) -> None:
    path = tmp_path / "a.mtx"
    path.write_text(MATRIX)
    with pytest.raises(WorkloadError, match="matmul takes no pattern"):
        read_workloads([f"matmul:M=4,N=4,K=4,pattern={path}"], None, None)


def test_a_missing_file_and_two_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="No such file"):
        read_workloads([f"spmv:pattern={tmp_path}/none.mtx"], None, None)
    with pytest.raises(WorkloadError, match="pattern is given twice"):
        read_workloads(["spmv:pattern=a.mtx,pattern=b.mtx"], None, None)

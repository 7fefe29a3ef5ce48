"""Patterns from files: SciPy's .npz of compressed rows, and Matrix Market's .mtx."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from tuner.errors import WorkloadError
from tuner.workload.budgets import BUDGETS
from tuner.workload.patterns import Pattern, compressed, spec_of_pattern

_FIELDS = ("format", "shape", "data", "indices", "indptr")


def spec_with_file(spec: str) -> str:
    """The spec with what the file of its `pattern=FILE` says in the place of the file.

    Raises `WorkloadError` as `read_pattern` and `spec_of_pattern` do.
    """
    op, colon, rest = spec.partition(":")
    items = rest.split(",")
    files = [item for item in items if item.strip().startswith("pattern=")]
    if not files:
        return spec
    if len(files) > 1:
        raise WorkloadError("pattern is given twice; give it once", parameter="pattern")
    others = ",".join(item for item in items if item not in files)
    name = files[0].strip().removeprefix("pattern=")
    return spec_of_pattern(f"{op}{colon}{others}", read_pattern(Path(name)))


def read_pattern(path: Path) -> Pattern:
    """The pattern in a file, by its suffix.

    Values of .mtx, which are decimal, count as float32. Raises `WorkloadError` for a file
    that cannot be read, and for one in another format.
    """
    readers = {".npz": _from_scipy, ".mtx": _from_matrix_market}
    if path.suffix not in readers:
        raise WorkloadError(
            f"pattern={path.name} is neither .npz (scipy.sparse.save_npz) nor .mtx (Matrix Market)",
            parameter="pattern",
        )
    try:
        return readers[path.suffix](path)
    except WorkloadError:
        raise
    # NumPy and zipfile raise nearly any error of a damaged file.
    except Exception as error:
        raise WorkloadError(
            f"pattern={path}: {str(error) or 'it is damaged'}", parameter="pattern"
        ) from None


def _check_size(nbytes: int) -> None:
    if nbytes > BUDGETS.nbytes:
        raise ValueError(
            f"it takes {nbytes / 2**30:.1f} GiB, the limit is {BUDGETS.nbytes / 2**30:.0f} GiB"
        )


def _from_scipy(path: Path) -> Pattern:
    with zipfile.ZipFile(path) as archive:
        _check_size(sum(member.file_size for member in archive.infolist()))
    with np.load(path, allow_pickle=False) as arrays:
        missing = [name for name in _FIELDS if name not in arrays]
        form = "" if missing else str(arrays["format"].item())
        form = form.removeprefix("b'").removesuffix("'")
        if form != "csr":
            raise ValueError("no matrix in compressed rows; save matrix.tocsr() by save_npz")
        shape, data, indices, pointers = (arrays[name] for name in _FIELDS[1:])
    return compressed(shape.tolist(), pointers, indices, data.dtype.name)


def _from_matrix_market(path: Path) -> Pattern:
    with path.open(encoding="latin-1") as lines:
        words = lines.readline().lower().split()
        if len(words) != 5 or words[0] != "%%matrixmarket" or words[2] != "coordinate":
            raise ValueError("no sparse matrix (coordinate) of Matrix Market")
        size = next((line for line in lines if line.strip() and not line.startswith("%")), "")
        rows, columns, count = (int(word) for word in size.split())
        if not (0 < rows <= BUDGETS.extent and 0 < columns <= BUDGETS.extent and count >= 0):
            raise ValueError(
                f"{rows} rows, {columns} columns and {count} places; both extents are 1 to "
                f"{BUDGETS.extent}"
            )
        _check_size(8 * (rows + 1) + 16 * count)
        empty = np.empty((0, 2), np.int64)  # of which NumPy warns
        places = np.loadtxt(lines, np.int64, usecols=(0, 1), ndmin=2) - 1 if count else empty
    if places.shape != (count, 2):
        raise ValueError(f"{len(places)} places, where {count} are announced")
    if words[4] != "general":  # of a symmetric matrix one half
        places = np.concatenate([places, places[places[:, 0] != places[:, 1]][:, ::-1]])
    if len(places) and (places.min() < 0 or (places.max(0) >= (rows, columns)).any()):
        raise ValueError(f"a place outside of {rows} rows and {columns} columns")
    places = places[np.lexsort(places.T[::-1])]
    pointers = np.bincount(places[:, 0] + 1, minlength=rows + 1)
    np.cumsum(pointers, out=pointers)
    return compressed((rows, columns), pointers, places[:, 1].astype(np.int32), "float32")

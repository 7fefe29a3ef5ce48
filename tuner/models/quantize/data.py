"""Calibration data: inputs as the network will see them, from a file or a folder of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path

import numpy as np

from tuner.models.arrays import Array
from tuner.models.errors import ModelRefused
from tuner.models.files.input_values import LARGEST_FILE, InputValues, read_array, read_values

ONLY_INPUT = ""  # the name of what a .npy file has, which is for a network of one input
_RUN_BYTES = 1 << 26  # of inputs, in a run whose size is ours to choose
_RUN_ROWS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredInput:
    """An input of a network as its file has it."""

    name: str
    shape: tuple[int | None, ...]  # None: left open
    dtype: np.dtype[np.generic]


def read_calibration(path: Path) -> InputValues:
    """The arrays of an .npz or .npy file by the names of inputs, or of all such files in a
    folder, one behind the other in the order of their names.

    Raises ModelRefused for what is no such file or folder, an empty folder, damaged files,
    and files that do not have the same inputs.
    """
    if not path.is_dir():
        return _read(path)
    files = sorted(file for file in path.iterdir() if file.suffix in (".npz", ".npy"))
    if not files:
        raise ModelRefused(
            f"{path} has no .npz or .npy file; write calibration inputs there with numpy.savez"
        )
    if sum(file.stat().st_size for file in files) > LARGEST_FILE:
        raise ModelRefused(f"the files in {path} have more than {LARGEST_FILE} bytes; give fewer")
    parts = [_read(file) for file in files]
    for file, part in zip(files, parts, strict=True):
        if {*part} != {*parts[0]}:
            raise ModelRefused(
                f"{file} has the inputs {_names(part)}, {files[0]} has {_names(parts[0])}"
            )
    return {name: _joined(path, name, [part[name] for part in parts]) for name in parts[0]}


def _read(path: Path) -> InputValues:
    return {ONLY_INPUT: read_array(path)} if path.suffix == ".npy" else read_values(path)


def _joined(path: Path, name: str, arrays: Sequence[Array]) -> Array:
    shapes = {(array.shape[1:], array.dtype) for array in arrays if array.ndim}
    if len(shapes) != 1 or not all(array.ndim for array in arrays):
        raise ModelRefused(f"the files in {path} have {name!r} in several shapes or dtypes")
    return np.concatenate(arrays)


def runs_of(
    declared: Sequence[DeclaredInput], values: InputValues, rows: int
) -> list[dict[str, Array]]:
    """The inputs of each run of the network, in the dtypes that it takes.

    The first extent counts rows. A run has as many as the network declares; where that is
    open, up to 32. At most `rows` rows are used, evenly out of all. What has the rows of a
    single run is the same in every run. Raises ModelRefused for data that does not fit.
    """
    if {*values} == {ONLY_INPUT} and len(declared) == 1:
        values = {declared[0].name: values[ONLY_INPUT]}
    missing = [entry.name for entry in declared if entry.name not in values]
    if missing:
        raise ModelRefused(
            f"the calibration data has no {missing[0]!r}, which the network takes; it has "
            f"{_names(values)}"
        )
    unknown = [name for name in values if name not in {entry.name for entry in declared}]
    if unknown:
        raise ModelRefused(
            f"the calibration data has {unknown[0]!r}, which is no input of the network; its "
            f"inputs are {_names({entry.name: None for entry in declared})}"
        )
    checked = {entry.name: _checked(entry, values[entry.name]) for entry in declared}
    own = {entry.name: _own_rows(entry) for entry in declared}
    each = _rows_of_a_run(checked, own)
    sizes = {name: rows or each for name, rows in own.items()}
    spans = {name: len(a) / sizes[name] if a.ndim else 1.0 for name, a in checked.items()}
    several = {span for span in spans.values() if span > 1}
    if len(several) > 1:
        spelt = ", ".join(f"{name!r} {len(checked[name])}" for name in spans if spans[name] > 1)
        raise ModelRefused(f"the calibration data has different numbers of rows: {spelt}")
    count = ceil(max(several, default=1.0))
    most = max(rows // each, 1)
    chosen = range(count) if count <= most else np.linspace(0, count - 1, most).astype(int).tolist()
    return [
        {
            name: array[sizes[name] * number :][: sizes[name]] if spans[name] > 1 else array
            for name, array in checked.items()
        }
        for number in chosen
    ]


def _own_rows(entry: DeclaredInput) -> int | None:
    """The rows of a run by the declaration of the input; None where that is open."""
    return (entry.shape[0] or None) if entry.shape else 1


def _rows_of_a_run(arrays: Mapping[str, Array], own: Mapping[str, int | None]) -> int:
    fixed = [rows for rows in own.values() if rows is not None]
    if fixed:
        return max(fixed)
    row_bytes = sum(array.nbytes // max(len(array), 1) for array in arrays.values())
    return max(min(_RUN_ROWS, _RUN_BYTES // max(row_bytes, 1)), 1)


def _checked(entry: DeclaredInput, array: Array) -> Array:
    """The array in the input's dtype."""
    what = f"the calibration data has {entry.name!r}"
    fits = array.ndim == len(entry.shape) and all(
        extent in (None, given)
        for extent, given in zip(entry.shape[1:], array.shape[1:], strict=True)
    )
    own = _own_rows(entry)
    if not fits or not array.size or (array.ndim and own and len(array) % own):
        count = f"a multiple of {own}" if own and own > 1 else "1 or more"
        rows = f"; the first extent counts rows, {count}" if entry.shape else ""
        raise ModelRefused(
            f"{what} in the shape {_spelt(array.shape)}; the network takes the shape "
            f"{_spelt(entry.shape)}{rows}"
        )
    if array.dtype.kind not in "fiub" or (array.dtype.kind == "f") > (entry.dtype.kind == "f"):
        raise ModelRefused(f"{what} as {array.dtype}; the network takes {entry.dtype}")
    with np.errstate(over="ignore"):
        typed = array.astype(entry.dtype)
    if typed.dtype.kind == "f" and not np.isfinite(typed).all():
        row = int(np.argwhere(~np.isfinite(typed))[0][0]) if typed.ndim else 0
        raise ModelRefused(f"{what} with NaN or infinity in row {row}; give numbers")
    if typed.dtype.kind in "iu" and (typed != array).any():
        raise ModelRefused(f"{what} with numbers beyond {entry.dtype}, which the network takes")
    return typed


def _spelt(shape: Sequence[int | None]) -> str:
    return "x".join("?" if e is None else str(e) for e in shape) or "of a single number"


def _names(values: Mapping[str, object]) -> str:
    return ", ".join(repr(name[:64]) for name in values) or "none"


def one_row(declared: Sequence[DeclaredInput], run: Mapping[str, Array]) -> dict[str, Array]:
    """The run cut to one row where the network leaves the number of rows open."""
    return {
        entry.name: run[entry.name][:1] if _own_rows(entry) is None else run[entry.name]
        for entry in declared
    }


def row_count(run: Mapping[str, Array]) -> int:
    """The rows of a run: the first extent of its largest input."""
    largest = max(run.values(), key=lambda array: prod(array.shape))
    return len(largest) if largest.ndim else 1

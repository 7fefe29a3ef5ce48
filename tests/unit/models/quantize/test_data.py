"""Calibration data: files, folders, and how rows become runs of a network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tuner.models.errors import ModelRefused
from tuner.models.quantize.data import ONLY_INPUT, DeclaredInput, read_calibration, runs_of

F32 = np.dtype(np.float32)
OPEN = DeclaredInput(name="x", shape=(None, 3), dtype=F32)
FIXED = DeclaredInput(name="x", shape=(2, 3), dtype=F32)
MASK = DeclaredInput(name="m", shape=(1,), dtype=np.dtype(np.int64))


def rows(count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.arange(count * 3.0).reshape(count, 3)


def test_open_rows_become_runs_of_up_to_32() -> None:
    runs = runs_of([OPEN], {"x": rows(70)}, 512)
    assert [len(run["x"]) for run in runs] == [32, 32, 6]
    assert runs[0]["x"].dtype == F32
    assert (np.concatenate([run["x"] for run in runs]) == rows(70)).all()


def test_fixed_rows_decide_the_runs_and_too_many_are_thinned_evenly() -> None:
    runs = runs_of([FIXED], {"x": rows(8)}, 4)
    assert [run["x"][0, 0] for run in runs] == [0, 18]


def test_an_input_of_one_run_is_the_same_in_all() -> None:
    runs = runs_of([FIXED, MASK], {"x": rows(6), "m": np.array([5])}, 512)
    assert [run["m"].tolist() for run in runs] == [[5]] * 3


def test_a_file_of_one_array_is_for_a_network_of_one_input(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", rows(2))
    values = read_calibration(tmp_path / "a.npy")
    assert [*values] == [ONLY_INPUT]
    assert (runs_of([OPEN], values, 8)[0]["x"] == rows(2)).all()


def test_files_of_a_folder_stand_behind_each_other(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", x=rows(2) + 100)
    np.savez(tmp_path / "a.npz", x=rows(1))
    (tmp_path / "notes.txt").write_text("not read")
    assert read_calibration(tmp_path)["x"][:, 0].tolist() == [0, 100, 103]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, ["no 'x'", "none"]),
        ({"y": rows(2)}, ["no 'x'", "'y'"]),
        ({"x": rows(2), "z": rows(2)}, ["'z'", "no input", "'x'"]),
        ({"x": rows(2).T.copy()}, ["3x2", "?x3"]),
        ({"x": rows(2)[None]}, ["1x2x3"]),
        ({"x": rows(0)}, ["0x3"]),
        ({"x": rows(2) * np.nan}, ["NaN", "row 0"]),
        ({"x": np.array([[0, 0, 0], [0, 1e60, 0]])}, ["NaN or infinity in row 1"]),
        ({"x": np.array([["a", "b", "c"]])}, ["<U1", "float32"]),
    ],
)
def test_data_that_does_not_fit_is_refused(
    values: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]], says: list[str]
) -> None:
    with pytest.raises(ModelRefused) as raised:
        runs_of([OPEN], values, 512)
    assert [words for words in says if words not in str(raised.value)] == []


def test_rows_that_make_no_whole_runs_and_integers_out_of_range_are_refused() -> None:
    with pytest.raises(ModelRefused, match=r"3x3; the network takes.* a multiple of 2"):
        runs_of([FIXED], {"x": rows(3)}, 512)
    small = DeclaredInput(name="m", shape=(1,), dtype=np.dtype(np.int8))
    with pytest.raises(ModelRefused, match="beyond int8"):
        runs_of([small], {"m": np.array([300])}, 512)
    with pytest.raises(ModelRefused, match="'m' as float64"):
        runs_of([MASK], {"m": np.array([1.0])}, 512)
    other = DeclaredInput(name="z", shape=(None, 3), dtype=F32)
    with pytest.raises(ModelRefused, match="different numbers of rows"):
        runs_of([OPEN, other], {"x": rows(70), "z": rows(40)}, 512)


def test_folders_without_data_and_damaged_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelRefused, match=r"no \.npz or \.npy file"):
        read_calibration(tmp_path)
    (tmp_path / "a.npz").write_bytes(b"PK no archive")
    with pytest.raises(ModelRefused, match=r"a\.npz is no \.npz file"):
        read_calibration(tmp_path)
    (tmp_path / "a.npz").unlink()
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(ModelRefused, match=r"a\.npy is damaged"):
        read_calibration(tmp_path)
    np.save(tmp_path / "a.npy", rows(1))
    np.savez(tmp_path / "b.npz", x=rows(1))
    with pytest.raises(ModelRefused, match="has the inputs 'x'"):
        read_calibration(tmp_path)
    (tmp_path / "b.npz").unlink()
    np.save(tmp_path / "b.npy", rows(1)[:, :2])
    with pytest.raises(ModelRefused, match="several shapes"):
        read_calibration(tmp_path)
    with pytest.raises(ModelRefused, match="is no file"):
        read_calibration(tmp_path / "missing.npz")

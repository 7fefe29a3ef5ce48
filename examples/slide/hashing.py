"""Hash tables of classes, and the classes of each sample that they and draws choose.

A sample whose hidden vector has the code of a class in some table computes that class: the
smaller the angle between vector and weights, the likelier it is (SimHash, Charikar 2002).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.runtime.loader import aligned_empty
from tuner.runtime.toolchain import Toolchain

NONE = -1  # in place of a class
FUNCTIONS = (
    "sign_codes", "fill_buckets", "in_buckets", "most_named", "beside_own", "change_rows",
)  # fmt: skip
FLAGS = ("-fvisibility=default", "-O3", "-march=native")


@cache
def library() -> ctypes.CDLL:
    """The functions of classes.c, compiled for this machine."""
    source = Path(__file__).with_name("classes.c")
    with TemporaryDirectory() as folder:
        tools = Toolchain.find(cache=Path(folder))  # another machine may share the usual one
        compiled = tools.compile(source.name, source.read_text(), {}, FLAGS)
        path = Path(folder) / "libclasses.so"
        path.write_bytes(tools.shared([compiled], soname=path.name, exported=FUNCTIONS))
        return ctypes.CDLL(str(path))


def call(name: str, *arguments: NDArray[Any] | float | None) -> None:
    """Calls a function of classes.c on contiguous arrays, or None of them, and numbers."""
    passed: list[ctypes.c_void_p | ctypes.c_int64 | ctypes.c_float] = []
    for argument in arguments:
        match argument:
            case np.ndarray():
                assert argument.flags.c_contiguous
                passed.append(ctypes.c_void_p(argument.ctypes.data))
            case None:
                passed.append(ctypes.c_void_p())
            case float():
                passed.append(ctypes.c_float(argument))
            case _:
                passed.append(ctypes.c_int64(argument))
    getattr(library(), name)(*passed)


def sign_codes(sums: NDArray[Any], tables: int) -> NDArray[np.int32]:
    """The codes of vectors, (vectors, tables): the signs of their sums along directions.

    `sums` are (vectors, tables * bits), of float32 or the bits of bfloat16. A bit is 1 where
    its sum is not negative. `simhash` gives the same of sums in float64.
    """
    codes = np.empty((len(sums), tables), np.int32)
    call("sign_codes", codes, sums, sums.itemsize, sums.shape[1] // tables, codes.size)
    return codes


class HashTables:
    """For each table and code so many classes as a bucket has room for."""

    def __init__(self, *, classes: int, tables: int, codes: int, room: int, seed: int) -> None:
        """`codes` are different in a table, and a bucket takes `room` classes."""
        self._buckets = np.full((tables, codes, room), NONE, np.int32)
        # Which classes a full bucket keeps is chance, not their number.
        self._order = np.random.default_rng(seed).permutation(classes).astype(np.int32)

    def fill(self, codes: NDArray[np.int32]) -> None:
        """Puts each class where its codes, (classes, tables), say."""
        self._buckets.fill(NONE)
        filled = np.zeros(self._buckets.shape[:2], np.int32)
        extents = (len(self._order), *self._buckets.shape)
        call("fill_buckets", self._buckets, filled, codes, self._order, *extents)

    def alike(self, codes: NDArray[np.int32]) -> NDArray[np.int32]:
        """The classes in the buckets of each sample, (samples, tables * room), and `NONE`s;
        `codes` are those of the samples, (samples, tables)."""
        tables, _, room = self._buckets.shape
        alike = np.empty((len(codes), tables * room), np.int32)
        call("in_buckets", alike, self._buckets, codes, len(codes), *self._buckets.shape)
        return alike


def most_named(
    first: NDArray[np.int32], often: NDArray[np.int32], count: int, times: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Of each row `count` different numbers, or fewer and then `NONE`s: those in `first`,
    then those that are most often in `often`. `times` has a zero for each number there is."""
    rows, firsts, named = *first.shape, often.shape[1]
    chosen, found = np.empty((rows, count), np.int32), np.empty(firsts + named, np.int32)
    scratch = (times, found, np.empty(named + 2, np.int32))
    call("most_named", chosen, first, often, *scratch, rows, firsts, named, count)
    return chosen


@dataclass(frozen=True, kw_only=True)
class Active:
    """The classes that samples compute, (samples, active), all in range."""

    classes: NDArray[np.int32]
    offsets: NDArray[np.float32]  # to add to their logits; -inf of those that count for nothing


class Draws:
    """Classes drawn for neighbouring samples of a batch, to stand for those that they did not
    choose.

    Half of the draws are as frequent as labels, and half are any class. The logarithm of the
    chance to be drawn is taken off a class's logit, so that the sum over the drawn classes is
    that over all, in expectation (sampled softmax, Jean et al. 2015). Where all samples have
    the same ones, their errors do not cancel, and learning is slow.
    """

    def __init__(
        self, counts: NDArray[np.int64], *, samples: int, count: int, groups: int, seed: int
    ) -> None:
        """`counts` says how often each class is a label; `count` are drawn for each of the
        groups of a batch, which has so many samples."""
        self._labels = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        self._frequent, self._any = count // 2, count - count // 2
        missed = self._frequent * np.log1p(-counts / counts.sum())
        missed += self._any * np.log1p(-1 / len(counts))
        self._offsets = -np.log(-np.expm1(missed)).astype(np.float32)
        self._rng, self._groups = np.random.default_rng(seed), groups
        self._seen, self._turn = np.zeros(len(counts), np.int64), 0

    def beside(self, own: NDArray[np.int32]) -> Active:
        """The classes of each sample, (samples, own) or `NONE`, and those drawn beside them."""
        drawn = np.empty((self._groups, self._frequent + self._any), np.int32)
        of_labels = self._rng.integers(len(self._labels), size=(self._groups, self._frequent))
        drawn[:, : self._frequent] = self._labels[of_labels]
        drawn[:, self._frequent :] = self._rng.integers(
            len(self._seen), size=(self._groups, self._any)
        )
        samples, width = own.shape
        classes = aligned_empty((samples, width + drawn.shape[1]), "int32")
        offsets = aligned_empty(classes.shape, "float32")
        extents = (self._turn, samples, width, *drawn.shape)
        call("beside_own", classes, offsets, own, drawn, self._offsets, self._seen, *extents)
        self._turn += samples
        return Active(classes=classes, offsets=offsets)

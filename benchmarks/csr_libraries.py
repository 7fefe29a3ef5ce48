"""Products of matrices in compressed rows by MKL, and by C that taco wrote.

Both are called through their C interfaces, as the libraries beside a kernel in
`benchmarks.sparse`; neither is needed by anything else. MKL's is the inspector-executor one: a
handle is made and optimized for many calls before the first, which no time includes. taco
(tensor-compiler.org) writes a kernel for one expression and schedule; the folder holds those of
the two products, each built from one of these:

    taco "y(i)=A(i,j)*x(j)" -f=A:ds -f=y:d -f=x:d -t=y:float -t=A:float -t=x:float \\
      -s="split(i,i0,i1,32),parallelize(i0,CPUThread,NoRaces)" -write-source=spmv.c
    taco "Y(i,k)=A(i,j)*X(j,k)" -f=A:ds -f=Y:dd -f=X:dd -t=Y:float -t=A:float -t=X:float \\
      -s="reorder(i,j,k),split(i,i0,i1,32),parallelize(i0,CPUThread,NoRaces)" \\
      -write-source=spmm.c
    gcc -O3 -march=native -ffast-math -fopenmp -shared -fPIC spmv.c -o libspmv.so
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from tuner.measure.rivals.rivals import RivalError
from tuner.workload.workload import Workload

CALLS = 100_000  # that MKL is told to expect
BLOCKTIME_MS = 20  # as long as the calls before a sample
# Of mkl_spblas.h.
_PLAIN, _GENERAL, _ROW_MAJOR = 10, 20, 101
_DYNAMIC = 2  # omp_sched_dynamic of omp.h
_CHUNK = 4  # blocks of 32 rows that a thread of taco's takes at a time

Multiply = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class CsrProduct:
    """A float32 matrix of (rows, columns) in compressed rows, and what it is multiplied with.

    `dense` has the shape (columns,) or (columns, width), `result` (rows,) or (rows, width).
    """

    pointers: NDArray[np.int32]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    dense: NDArray[np.float32]
    result: NDArray[np.float32]

    @classmethod
    def of(cls, workload: Workload, inputs: Mapping[str, Any]) -> CsrProduct:
        """Raises RivalError for other work."""
        if workload.op not in ("spmv", "spmm") or inputs["A"].dtype != np.float32:
            raise RivalError(f"it multiplies float32 matrices only, and not {workload.spec}")
        dense = np.ascontiguousarray(inputs["X"])
        pointers = inputs["P"].astype(np.int32)
        return cls(
            pointers=pointers,
            indices=inputs["J"].astype(np.int32),
            values=np.ascontiguousarray(inputs["A"]),
            dense=dense,
            result=np.zeros((len(pointers) - 1, *dense.shape[1:]), np.float32),
        )

    def expected(self) -> NDArray[np.float32]:
        """The result, by SciPy."""
        matrix = csr_array((self.values, self.indices, self.pointers), shape=self.shape)
        return np.asarray(matrix @ self.dense)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.pointers) - 1, len(self.dense)

    @property
    def width(self) -> int | None:
        return self.dense.shape[1] if self.dense.ndim > 1 else None


class _Description(ctypes.Structure):
    """`struct matrix_descr`."""

    _fields_ = (("type", ctypes.c_int), ("mode", ctypes.c_int), ("diagonal", ctypes.c_int))


def mkl(library: Path, product: CsrProduct, threads: int) -> Multiply:
    """MKL's product, by libmkl_rt."""
    # Its threads spin for 200 ms behind a call, unless they are told not to. Whoever is next waits
    # for them to end, and then finds its own threads asleep.
    os.environ.setdefault("KMP_BLOCKTIME", str(BLOCKTIME_MS))
    functions = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    functions.MKL_Set_Num_Threads(threads)
    rows, columns = product.shape
    handle, description = ctypes.c_void_p(), _Description(_GENERAL, 0, 0)
    begins = product.pointers
    _succeeded(
        functions.mkl_sparse_s_create_csr(
            ctypes.byref(handle), 0, rows, columns, _pointer(begins), _pointer(begins[1:]),
            _pointer(product.indices), _pointer(product.values),
        )
    )  # fmt: skip
    alpha, beta = ctypes.c_float(1), ctypes.c_float(0)
    dense, result, width = _pointer(product.dense), _pointer(product.result), product.width
    given: tuple[Any, ...]
    if width is None:
        hinted = functions.mkl_sparse_set_mv_hint(handle, _PLAIN, description, CALLS)
        call, given = functions.mkl_sparse_s_mv, (dense, beta, result)
    else:
        hinted = functions.mkl_sparse_set_mm_hint(
            handle, _PLAIN, description, _ROW_MAJOR, width, CALLS
        )
        call = functions.mkl_sparse_s_mm
        given = (_ROW_MAJOR, dense, width, width, beta, result, width)
    _succeeded(hinted)
    _succeeded(functions.mkl_sparse_optimize(handle))

    def multiply(_: CsrProduct = product) -> object:  # kept, for the handle leads to its arrays
        return call(_PLAIN, alpha, handle, description, *given)

    return multiply


class _Tensor(ctypes.Structure):
    """`taco_tensor_t`."""

    _fields_ = (
        ("order", ctypes.c_int32),
        ("dimensions", ctypes.c_void_p),
        ("component_bytes", ctypes.c_int32),
        ("mode_ordering", ctypes.c_void_p),
        ("mode_types", ctypes.c_void_p),
        ("indices", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("fill_value", ctypes.c_void_p),
        ("values_size", ctypes.c_int32),
    )


def taco(folder: Path, product: CsrProduct, threads: int) -> Multiply:
    """The product of taco's kernel in `folder`: libspmv.so or libspmm.so."""
    functions = ctypes.CDLL(str(folder / f"lib{'spmv' if product.width is None else 'spmm'}.so"))
    functions.omp_set_num_threads(threads)
    functions.omp_set_schedule(_DYNAMIC, _CHUNK)
    kept: list[Any] = [product]
    sparse = _tensor(kept, product.shape, product.values)
    modes = [
        (ctypes.c_void_p * 2)(),  # rows are dense
        (ctypes.c_void_p * 2)(product.pointers.ctypes.data, product.indices.ctypes.data),
    ]
    levels = (ctypes.c_void_p * 2)(*map(ctypes.addressof, modes))
    kept += [*modes, levels]
    sparse.indices = ctypes.addressof(levels)
    result, dense = (_tensor(kept, each.shape, each) for each in (product.result, product.dense))

    def multiply(_: list[Any] = kept) -> object:  # which the pointers lead to
        return functions.compute(*map(ctypes.byref, (result, sparse, dense)))

    return multiply


def _tensor(kept: list[Any], shape: tuple[int, ...], values: NDArray[Any]) -> _Tensor:
    dimensions = np.array(shape, np.int32)
    kept += [dimensions, values]
    return _Tensor(
        order=len(shape),
        dimensions=dimensions.ctypes.data,
        component_bytes=values.itemsize,
        values=values.ctypes.data,
    )


def _pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _succeeded(status: int) -> None:
    if status:
        raise RivalError(f"MKL gave the status {status}")

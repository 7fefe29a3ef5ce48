"""Matrices that SciPy, scikit-learn and networkx ship: read as patterns, and multiplied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.loaded_kernels import loaded
from tests.support.targets import host_target
from tuner.app.workloads import as_workload
from tuner.spaces.by_target import cpu_space
from tuner.workload.workload import Workload


def digits() -> Any:
    """Pixels of handwritten digits, of which half are 0: 1797×64, float64."""
    datasets, sparse = pytest.importorskip("sklearn.datasets"), pytest.importorskip("scipy.sparse")
    return sparse.csr_array(datasets.load_digits().data)


def irises() -> Any:
    """Each flower with the five most like it: rows of one length."""
    datasets = pytest.importorskip("sklearn.datasets")
    neighbors = pytest.importorskip("sklearn.neighbors")
    return neighbors.kneighbors_graph(datasets.load_iris().data, 5, mode="distance")


def miserables() -> Any:
    """Who meets whom in a novel, how often: a symmetric graph with a few great degrees."""
    networkx = pytest.importorskip("networkx")
    pytest.importorskip("scipy")
    return networkx.to_scipy_sparse_array(networkx.les_miserables_graph(), dtype=np.float32)


def laplacian() -> Any:
    """Differences on a grid of 20×30: short rows about the diagonal."""
    operators = pytest.importorskip("scipy.sparse.linalg")
    return operators.LaplacianNd((20, 30), dtype=np.float64).tosparse()


SHIPPED = (digits, irises, miserables, laplacian)


def compiled(workload: Workload, folder: Path, *, tuned: bool) -> Callable[..., Any]:
    """The kernel of the default schedule, or one drawn from the space."""
    config = None
    if tuned:
        space = cpu_space(workload, host_target(), 1).space
        (point,) = space.sample(np.random.default_rng(3), 1)
        config = space.config(point)
    return loaded(workload, folder / f"lib{tuned}.so", config=config)


@pytest.mark.slow
@pytest.mark.parametrize("matrix", SHIPPED)
@pytest.mark.parametrize("spec", ["spmm:K=21", "spmv:"])
def test_a_shipped_matrix_is_multiplied(
    matrix: Callable[[], Any], spec: str, tmp_path: Path
) -> None:
    rows = matrix().tocsr()
    workload = as_workload(spec, shapes=None, constants=(), numerics="strict", pattern=rows)
    pointers, places, values, dense = (tensor.dtype for tensor in workload.expression.inputs)
    shape = workload.expression.inputs[3].shape
    x = np.random.default_rng(0).standard_normal(shape).astype(dense)
    arrays = (rows.indptr.astype(pointers), rows.indices.astype(places), rows.data.astype(values))
    for tuned in (False, True):
        got = compiled(workload, tmp_path, tuned=tuned)(*arrays, x)
        np.testing.assert_allclose(got, rows @ x, rtol=1e-4, atol=1e-5)

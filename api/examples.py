"""Examples for the OpenAPI document: a job with its trial, kernel and worker.

Their numbers are made up. A test validates them against the schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tuner.search.strategies import DEFAULT_STRATEGY

TARGET = {"key": "9f2c" * 16, "kind": "cpu", "name": "a machine of two cores"}
WORKLOAD = {
    "key": "51ab" * 16,
    "op": "matmul",
    "params": {"M": 512, "N": 512, "K": 512, "dtype": "float32"},
    "notation": None,
    "shapes": None,
    "spec": "matmul:M=512,N=512,K=512",
}
TASK = {
    "workload": WORKLOAD,
    "state": "queued",
    "space_size": 812_160,
    "trials_done": 48,
    "trials_ok": 47,
    "best_median_s": 0.0012,
    "kernel": None,
    "elapsed_s": {"total": 21.4, "search": 1.2, "build": 14.0, "measure": 12.9},
    "stopped": None,
    "error": None,
}
JOB = {
    "id": "j_01m7wn0000000000",
    "kind": "tune",
    "state": "running",
    "target": TARGET,
    "threads": 1,
    "trials": 128,
    "seconds": None,
    "strategy": DEFAULT_STRATEGY,
    "seed": 0,
    "priority": 0,
    "error": None,
    "waiting": None,
    "created_at": "2026-11-20T12:00:00Z",
    "started_at": "2026-11-20T12:00:01Z",
    "finished_at": None,
    "elapsed_s": 21.6,
    "last_event": 57,
    "tasks": [TASK],
}
CONFIG = {"sketch": "tiled", "tile.i": [4, 8], "tile.j": [2, 16], "unroll": 4}
TRIAL = {
    "workload": 0,
    "number": 12,
    "config": CONFIG,
    "outcome": "ok",
    "median_s": 0.0012,
    "samples_s": [0.0012, 0.0011, 0.0013],
    "max_rel_error": 1e-7,
    "build_s": 0.31,
    "measure_s": 0.27,
    "predicted": 0.74,
    "worker": "lane0",
    "conditions": {
        "lane": "lane0",
        "isolation": "sealed",
        "cache": "warm",
        "steal_s": 0.0,
        "frequency_hz": None,
        "pace": 0.99,
        "abandoned": False,
    },
    "resources": None,
    "error": None,
    "created_at": "2026-11-20T12:00:09Z",
}
KERNEL = {
    "id": "k_01m7wn0000000000",
    "state": "promoted",
    "workload": WORKLOAD,
    "target": TARGET,
    "threads": 1,
    "config": CONFIG,
    "median_s": 0.001,
    "ci95_s": [0.00098, 0.00102],
    "disturbed": False,
    "gflops": 268.4,
    "roofline_fraction": 0.5,
    "max_rel_error": 1e-7,
    "verified": True,
    "default_median_s": 0.01,
    "artifact": "c0de" * 16,
    "job": JOB["id"],
    "trial": 12,
    "previous": None,
    "stale": None,
    "race": {"default": {"median_s": 0.01, "ci95_s": [0.0099, 0.0101]}},
    "versions": {"apache-tvm": "0.27.0.post1"},
    "created_at": "2026-11-20T12:01:00Z",
}
WORKER = {
    "id": "node-3",
    "host": "node-3",
    "state": "active",
    "reason": None,
    "target": TARGET["key"],
    "isolation": "sealed",
    "lanes": [{"name": "node-3/lane0", "cores": [2, 3]}],
    "labels": {"rack": "7"},
    "versions": {"apache-tvm": "0.27.0.post1"},
    "joined_at": "2026-11-20T11:00:00Z",
    "heartbeat_at": "2026-11-20T12:00:07Z",
    "heartbeat_age_s": 2.1,
}

# By the name of the schema.
EXAMPLES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "JobAnswer": JOB,
        "TrialAnswer": TRIAL,
        "KernelAnswer": KERNEL,
        "LookupAnswer": {"source": "exact", "kernel": KERNEL, "job": None},
        "RollbackAnswer": {"rolled_back": "k_01m7wp0000000000", "promoted": KERNEL},
        "WorkerAnswer": WORKER,
        "ResumeRequest": {"trials": 512},
        "RunAnswer": {
            "id": "r_01m7wn0000000000",
            "kernel": KERNEL["id"],
            "state": "queued",
            "created_at": "2026-11-20T12:02:00Z",
        },
        "ModelRunAnswer": {
            "id": "r_01m7wn0000000001",
            "job": JOB["id"],
            "state": "queued",
            "created_at": "2026-11-20T12:02:00Z",
        },
        "ModelAnswer": {
            "job": JOB["id"],
            "state": "succeeded",
            "inputs": [{"name": "x", "dtype": "float32", "shape": [1, 512]}],
            "outputs": [{"name": "y", "dtype": "float32", "shape": [1, 512]}],
            "steps": [
                {
                    "kernel": WORKLOAD["key"],
                    "name": "matmul",
                    "numerics": "strict",
                    "calls": 1,
                    "reads": [
                        {"name": "x0", "dtype": "float32", "shape": [1, 512]},
                        {"name": "c0", "dtype": "float32", "shape": [512, 512]},
                    ],
                    "constants": ["c0"],
                    "writes": [{"name": "t0", "dtype": "float32", "shape": [1, 512]}],
                    "after": [],
                    "inputs": [0],
                    "outputs": [0],
                }
            ],
            "median_s": 2.1e-5,
            "ci95_s": [2.0e-5, 2.2e-5],
            "disturbed": False,
            "max_rel_error": 3.1e-7,
            "shares": [
                {
                    "kernel": WORKLOAD["key"],
                    "calls": 1,
                    "inside_s": 2.0e-5,
                    "share": 1.0,
                    "peak_fraction": 0.2,
                }
            ],
            "constants_bytes": 1_048_576,
            "activations_bytes": 0,
        },
    }
)

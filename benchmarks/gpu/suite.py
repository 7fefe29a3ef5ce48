"""The races on a GPU: their workloads and the ratio to a library that each must reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    name: str  # of its folder
    kind: str  # how the other machine makes inputs, truth and rivals: a name in standalone.py
    spec: str
    bars: Mapping[str, float]  # least ratio library / kernel, by architecture
    copy_fraction: float = 0.0  # least share of the measured copy bandwidth; 0: none is asked
    # What the other machine needs of the spec.
    sizes: Mapping[str, int] = field(default_factory=dict)


SUITE = (
    Race(
        name="matmul_fp32",
        kind="matmul_fp32",
        spec="matmul:M=2048,N=2048,K=2048",
        bars={"sm_80": 0.95, "sm_90": 0.95},
        sizes={"M": 2048, "N": 2048, "K": 2048},
    ),
    # Under fast numerics, against what the libraries do in float32: tf32, which keeps
    # 11 bits, takes no part.
    Race(
        name="matmul_fast",
        kind="matmul_fp32",
        spec="matmul:M=2048,N=2048,K=2048,numerics=fast",
        bars={"sm_80": 1.0, "sm_90": 1.0},
        sizes={"M": 2048, "N": 2048, "K": 2048},
    ),
    Race(
        name="conv_fast",
        kind="conv_fp32",
        spec="conv2d:N=32,H=28,W=28,CI=128,CO=128,KH=3,KW=3,pad=1,numerics=fast",
        bars={"sm_80": 1.0, "sm_90": 1.0},
        sizes={"N": 32, "H": 28, "W": 28, "CI": 128, "CO": 128},
    ),
    Race(
        name="matmul_fp16",
        kind="matmul_fp16",
        spec="matmul:M=4096,N=4096,K=4096,dtype=float16",
        # mma.sync cannot feed Hopper's tensor cores fully; that takes wgmma and the
        # tensor memory accelerator.
        bars={"sm_80": 0.80, "sm_90": 0.55},
        sizes={"M": 4096, "N": 4096, "K": 4096},
    ),
    Race(
        name="conv_fp16",
        kind="conv_fp16",
        spec="conv2d:N=32,H=56,W=56,CI=64,CO=64,KH=3,KW=3,pad=1,dtype=float16",
        bars={"sm_80": 0.7, "sm_90": 0.7},
        sizes={"N": 32, "H": 56, "W": 56, "CI": 64, "CO": 64},
    ),
    Race(
        name="softmax",
        kind="softmax",
        spec="softmax:M=16384,N=4096",
        bars={"sm_80": 1.0, "sm_90": 1.0},
        copy_fraction=0.85,
        sizes={"M": 16384, "N": 4096},
    ),
    Race(
        name="layer_norm",
        kind="layer_norm",
        spec="layer_norm:M=16384,N=4096",
        bars={"sm_80": 1.0, "sm_90": 1.0},
        copy_fraction=0.85,
        sizes={"M": 16384, "N": 4096},
    ),
    Race(
        name="bias_gelu",
        kind="bias_gelu",
        spec="bias_act:M=16384,N=4096,act=gelu",
        bars={"sm_80": 1.0, "sm_90": 1.0},
        copy_fraction=0.85,
        sizes={"M": 16384, "N": 4096},
    ),
)

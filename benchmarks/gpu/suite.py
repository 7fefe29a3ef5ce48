"""The races on a GPU: their workloads and the ratio to a library that each must reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.gpu.models import ModelRace
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    name: str  # of its folder
    kind: str  # how the other machine makes inputs, truth and rivals: a name in carried/cases.py
    dtype: str = "float32"  # of the inputs
    spec: str  # or what a program in the notation is called
    notation: str | None = None  # whose extents are `sizes`
    numerics: str = "strict"  # of the notation
    bars: Mapping[str, float]  # least ratio library / kernel, by architecture that has this race
    copy_fraction: float = 0.0  # least share of the measured copy bandwidth; 0: none is asked
    # What the other machine needs of the spec.
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def workload(self) -> Workload:
        if self.notation is None:
            return parse_spec(self.spec)
        return workload_from_notation(self.notation, self.sizes, numerics=self.numerics)


BYTE_FLOATS = """kernel product(X: u8[M, K], W: u8[N, K], s: f32[1]) -> (Y: bf16[M, N]) {
  T[i, j] += bitcast(e4m3, X[i, k]) * bitcast(e4m3, W[j, k])
  Y[i, j] = bf16(T[i, j] * s[0])
}"""


def _product(name: str, dtype: str, m: int, n: int, k: int) -> Race:
    return Race(
        name=name,
        kind="matmul",
        dtype=dtype,
        spec=f"matmul:M={m},N={n},K={k},dtype={dtype}",
        # mma.sync, which sm_80 has, and what an H200 showed of sm_90's persistent kernels.
        bars={"sm_80": 0.80, "sm_90": 0.95},
        sizes={"M": m, "N": n, "K": k},
    )


def _rows(name: str, kind: str, spec: str) -> Race:
    return Race(
        name=name,
        kind=kind,
        spec=spec,
        bars={"sm_80": 1.0, "sm_90": 1.0},
        copy_fraction=0.85,
        sizes={"M": 16384, "N": 4096},
    )


def _network(name: str, spec: str, network: str, batch: int) -> ModelRace:
    bars = {"sm_80": 1.0, "sm_90": 1.0}
    return ModelRace(name=name, spec=spec, network=network, batch=batch, bars=bars)


# In the order of their importance: the last ones may not be reached.
SUITE: tuple[Race | ModelRace, ...] = (
    _product("matmul_fp16", "float16", 4096, 4096, 4096),
    _product("matmul_bf16", "bfloat16", 4096, 4096, 4096),
    _product("matmul_fp16_flat", "float16", 8192, 4096, 1024),
    _product("matmul_bf16_flat", "bfloat16", 8192, 4096, 1024),
    Race(
        name="dense_fp8",
        kind="byte_floats_product",
        dtype="uint8",
        spec="dense of e4m3 in bfloat16, 4096×4096×4096",
        notation=BYTE_FLOATS,
        numerics="tensor",
        bars={"sm_90": 0.9},
        sizes={"M": 4096, "N": 4096, "K": 4096},
    ),
    _network("bert", "BERT-base, 128 tokens, float16", "bert", 1),
    _network("resnet_1", "ResNet-50, batch 1, float16", "resnet", 1),
    _network("resnet_32", "ResNet-50, batch 32, float16", "resnet", 32),
    Race(
        name="conv_fp16",
        kind="convolution",
        dtype="float16",
        spec="conv2d:N=32,H=56,W=56,CI=64,CO=64,KH=3,KW=3,pad=1,dtype=float16",
        bars={"sm_80": 0.7, "sm_90": 1.0},
        sizes={"N": 32, "H": 56, "W": 56, "CI": 64, "CO": 64},
    ),
    Race(
        name="conv_fp16_stride2",
        kind="convolution",
        dtype="float16",
        spec="conv2d:N=32,H=56,W=56,CI=64,CO=128,KH=3,KW=3,pad=1,stride=2,dtype=float16",
        bars={"sm_80": 0.7, "sm_90": 1.0},
        sizes={"N": 32, "H": 56, "W": 56, "CI": 64, "CO": 128, "stride": 2},
    ),
    # Tiles that leave multiprocessors idle unless blocks share them.
    Race(
        name="matmul_fp16_small",
        kind="matmul",
        dtype="float16",
        spec="matmul:M=1000,N=840,K=1016,dtype=float16",
        bars={"sm_80": 0.80, "sm_90": 0.95},
        sizes={"M": 1000, "N": 840, "K": 1016},
    ),
    Race(
        name="dense_int8",
        kind="bytes_product",
        dtype="int8",
        spec="dense:M=4096,N=4096,K=4096,dtype=int8",
        bars={"sm_80": 0.8, "sm_90": 0.9},
        sizes={"M": 4096, "N": 4096, "K": 4096},
    ),
    Race(
        name="matmul_fp32",
        kind="matmul",
        spec="matmul:M=2048,N=2048,K=2048",
        bars={"sm_80": 0.95, "sm_90": 0.97},
        sizes={"M": 2048, "N": 2048, "K": 2048},
    ),
    _rows("softmax", "softmax", "softmax:M=16384,N=4096"),
    _rows("layer_norm", "layer_norm", "layer_norm:M=16384,N=4096"),
    _rows("bias_gelu", "bias_gelu", "bias_act:M=16384,N=4096,act=gelu"),
    # Against what the libraries make of float32 where they may use tf32.
    Race(
        name="dense_tf32",
        kind="tf32_product",
        spec="dense:M=4096,N=4096,K=4096,numerics=tensor",
        bars={"sm_90": 0.95},
        sizes={"M": 4096, "N": 4096, "K": 4096},
    ),
    # Under fast numerics, against what the libraries do in float32: tf32, which keeps
    # 11 bits, takes no part.
    Race(
        name="matmul_fast",
        kind="matmul",
        spec="matmul:M=2048,N=2048,K=2048,numerics=fast",
        bars={"sm_80": 1.0, "sm_90": 1.0},
        sizes={"M": 2048, "N": 2048, "K": 2048},
    ),
    Race(
        name="conv_fast",
        kind="convolution",
        spec="conv2d:N=32,H=28,W=28,CI=128,CO=128,KH=3,KW=3,pad=1,numerics=fast",
        bars={"sm_80": 1.0, "sm_90": 1.0},
        sizes={"N": 32, "H": 28, "W": 28, "CI": 128, "CO": 128},
    ),
)

"""Products and convolutions that three products of bfloat16 apply to on a GPU."""

from __future__ import annotations

# Extents that blocks divide and that they do not, operands lying either way, windows,
# epilogues; under fast numerics.
SPECS = (
    "matmul:M=64,N=64,K=64", "matmul:M=61,N=67,K=71", "matmul:M=72,N=64,K=40,transpose_b=true",
    "matmul:M=64,N=72,K=24,transpose_a=true",
    "batch_matmul:B=3,M=64,N=72,K=40", "dense:M=64,N=128,K=64,bias=true,act=gelu",
    "conv2d:N=2,H=5,W=32,CI=24,CO=64,KH=3,KW=3,pad=1,act=relu",
    "conv2d:N=8,H=8,W=8,CI=16,CO=64,KH=3,KW=2,stride=2,pad=1",
)  # fmt: skip

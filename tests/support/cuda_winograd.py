"""Convolutions that Winograd's algorithm applies to on a GPU."""

from __future__ import annotations

# Extents that squares and blocks divide and that they do not, both layouts, every
# padding, epilogues; under fast numerics.
SPECS = (
    "conv2d:N=2,H=14,W=14,CI=16,CO=32,KH=3,KW=3,pad=1,act=relu",
    "conv2d:N=1,H=7,W=9,CI=5,CO=12,KH=3,KW=3,pad=1,bias=true",
    "conv2d:N=1,H=13,W=8,CI=3,CO=7,KH=3,KW=3,pad=0",
    "conv2d:N=3,H=6,W=5,CI=8,CO=16,KH=3,KW=3,pad=2,bias=true,act=gelu",
    "conv2d:N=2,H=14,W=16,CI=6,CO=9,KH=3,KW=3,pad=1,layout=NCHW",
    "conv2d:N=1,H=9,W=11,CI=4,CO=20,KH=3,KW=3,layout=NCHW,act=relu",
    "conv2d:N=1,H=4,W=4,CI=1,CO=1,KH=3,KW=3,pad=1",
    "conv2d:N=1,H=10,W=12,CI=12,CO=24,KH=3,KW=3,pad=1,const=W",
    "conv2d:N=1,H=19,W=34,CI=2,CO=3,KH=3,KW=3,pad=1,bias=true,layout=NCHW,act=tanh",
)  # fmt: skip

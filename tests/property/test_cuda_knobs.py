"""What configs hold for the choices of GPU sketches can be read back."""

from __future__ import annotations

import pytest

from tests.support.spaces import shared_space
from tuner.cost_model.cuda.footprint import distinct_facts
from tuner.target.cuda import cuda_target

TARGET = cuda_target("sm_90", lambda fingerprint: "declared")
SPECS = (
    "matmul:M=64,N=64,K=64,transpose_b=true",
    "matmul:M=128,N=128,K=128,dtype=bfloat16",
    "matmul:M=64,N=64,K=64,numerics=fast",
    "conv2d:N=1,H=16,W=16,CI=16,CO=32,KH=3,KW=3,pad=1,dtype=float16",
    "conv2d:N=1,H=8,W=8,CI=16,CO=32,KH=3,KW=3,pad=1,numerics=fast",
    "layer_norm:M=8,N=256",
    "transpose:M=37,N=41",
)


@pytest.mark.parametrize("spec", SPECS)
def test_every_value_is_read_back_from_what_is_stored_for_it(spec: str) -> None:
    space = shared_space(spec, TARGET)
    for facts in distinct_facts(space):
        declared = [facts.block, *facts.copies, facts.pipelining, facts.padded_rows]
        for choice in declared:
            if choice is None:
                continue
            assert len(set(choice.stored)) == len(choice.values) == len(set(choice.values))
            for value, stored in zip(choice.values, choice.stored, strict=True):
                assert choice.of({choice.name: stored}) == value

"""A small problem to build and measure."""

from __future__ import annotations

from tests.support.targets import host_target
from tuner.workers.fleet.messages import Problem
from tuner.workload.spec import parse_spec

PROBLEM = Problem(workload=parse_spec("matmul:M=24,N=16,K=20"), target=host_target(), threads=1)

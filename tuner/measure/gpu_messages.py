"""What a GPU's runner is asked: one request a candidate, plain data with its form on the wire."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from tuner.measure.assignment import Verification
from tuner.measure.timing import SCREENING, TimingPlan
from tuner.measure.wire import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    library: str  # path of a library of CUDA kernels
    symbol: str  # the function in it
    timeout_s: float = 20.0  # of each stage of the measurement
    verification: Verification = "screening"
    plan: TimingPlan = field(default_factory=lambda: SCREENING)  # `cache="cold"` flushes the L2 before each sample
    abandon_above_s: float | None = None


def gpu_request_to_document(request: GpuRequest) -> Document:
    return asdict(request)


def gpu_request_from_document(document: Document) -> GpuRequest:
    return GpuRequest(**{**document, "plan": TimingPlan(**document["plan"])})

"""Latency as a part of the loss of an architecture search.

`latencies` says what candidate layers take on the target: by their measured kernels, or by
what those teach. `ExpectedLatency` makes of such times the latency of a mixture, with
gradients. Both need PyTorch.
"""

from tuner.nas.expected import ExpectedLatency
from tuner.nas.layers import LayerLatency, latencies

__all__ = ["ExpectedLatency", "LayerLatency", "latencies"]

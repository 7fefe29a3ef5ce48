"""The job engine: claims jobs by lease, tunes their workloads, promotes winners. No Ray."""

"""The analytical model of a GPU's kernels: costs of knob values, resources of thread blocks."""

"""What kernels are tuned for: detection, fingerprint, measured limits, roofline."""

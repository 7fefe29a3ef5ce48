"""Terms of the estimated cycles: each counts one reason for which a kernel takes time."""

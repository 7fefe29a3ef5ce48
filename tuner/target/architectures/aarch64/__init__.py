"""64-bit Arm: NEON vectors and the dot products of 8-bit integers."""

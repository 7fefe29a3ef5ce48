"""The loop-nest IR that sketches emit: blocks, buffers, and the ordered schedule
primitives on them. Pure data."""

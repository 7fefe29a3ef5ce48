"""The analytical model of a CPU's loop nests: extents and tiles of many configs at
once, and the cycles they take."""

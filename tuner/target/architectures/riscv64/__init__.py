"""64-bit RISC-V: vectors of the length that a core has at least."""

"""32-bit WebAssembly with its vectors of 16 bytes, in modules that an engine loads."""

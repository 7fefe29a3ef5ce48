"""x86-64 from AVX2 on: names, instructions, CPUID bits and levels."""

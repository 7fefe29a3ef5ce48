"""The environment variable that makes a CPU seem poorer to a library than it is."""

from __future__ import annotations

# LLVM's names of features, with commas, that libraries are to believe missing.
HIDDEN_FEATURES = "TUNED_CPU_WITHOUT"

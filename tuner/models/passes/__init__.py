"""From a graph to another that computes the same, and to the derivative."""

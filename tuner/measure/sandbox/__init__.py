"""How a candidate's process is fenced off from the machine: filters, namespaces,
limits, and what the kernel supports."""

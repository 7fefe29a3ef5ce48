"""How a candidate's process is fenced off from the machine.

Filters, namespaces, limits, and what the kernel supports of them.
"""

"""CPU architectures: a folder for each, and one table (`table.py`) that lists them."""

"""The folder that comes first on the path of a traced interpreter."""

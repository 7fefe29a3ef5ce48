"""The pages, one file each."""

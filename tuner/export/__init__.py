"""Kernels as libraries: code, header, manifest, loaders, signature; the store of artifacts."""

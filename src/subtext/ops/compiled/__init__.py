"""Kernels that a compiler makes at their first call: numba on a CPU, Triton on a GPU."""

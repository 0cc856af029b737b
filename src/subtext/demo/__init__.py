"""The demonstration: the whole way on real pictures that come as Python packages."""

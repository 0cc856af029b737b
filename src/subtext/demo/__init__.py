"""The demonstration: the whole way on real images that come as Python packages."""

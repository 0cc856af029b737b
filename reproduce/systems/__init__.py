"""The systems of a paper: what its tables train, and how."""

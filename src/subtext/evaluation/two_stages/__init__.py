"""Two stages: a fast model finds a few candidates of each query, and an expensive one scores those pairs alone."""

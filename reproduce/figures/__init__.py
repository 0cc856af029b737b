"""`subtext figure`: figures of a paper, drawn from a data set, runs, or what any model gave."""

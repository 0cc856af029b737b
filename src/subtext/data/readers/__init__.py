"""Readers: one file a format. Each gives rows, of which `subtext.data.read` makes a Dataset."""

"""Published tables, one a file: which rows, and which numbers were printed."""

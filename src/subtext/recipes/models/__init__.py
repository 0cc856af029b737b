"""One model family a file: Supply and options -> Setup."""

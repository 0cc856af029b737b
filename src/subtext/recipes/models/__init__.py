"""One model family a file: BuildContext and options -> Setup."""

"""The results of two runs for the same queries, side by side on one page."""

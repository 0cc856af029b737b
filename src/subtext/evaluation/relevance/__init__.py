"""What counts as related: it becomes the truth of a Comparison."""

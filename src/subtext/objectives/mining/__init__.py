"""Mining: Scene, Epoch -> the comparison that a loss reads, with fewer negatives or with cells that count more."""

"""Sample weights: Scene, Epoch -> one weight per query."""

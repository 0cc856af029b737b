"""Penalties of a whole batch: Scene -> one value."""

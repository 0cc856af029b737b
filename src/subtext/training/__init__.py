"""Training: one loop, and what it needs."""

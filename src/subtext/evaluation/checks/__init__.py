"""Checks of an evaluation itself: its scores, its data, the space of its vectors, and its graphs."""

"""Texts made of texts while training: richer and shorter ones that stay true, and noisy ones that do not."""

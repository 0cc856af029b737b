"""The semantic graph: the nearest neighbours of texts, in a space that training does not change."""

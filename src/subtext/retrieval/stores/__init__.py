"""Where a search index lives."""

"""From files to batches: rows of pairs, pictures, texts, cached features."""

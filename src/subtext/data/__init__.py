"""From files to batches: rows of pairs, images, texts, cached features."""

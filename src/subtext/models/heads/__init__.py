"""From an encoder's output to the joint space: Encoded, ids -> Embeddings."""

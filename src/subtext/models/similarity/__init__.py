"""How two sets of embeddings are compared: Embeddings, Embeddings -> scores."""

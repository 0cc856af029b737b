"""Models: encoders, heads, similarities, and what joins, saves and loads them."""

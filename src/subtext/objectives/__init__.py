"""Training objectives: losses, sample weights, mining, regularisers and text generation."""

"""Pure numerics: no input, no output, no state."""

"""The semantic graph: which texts lie near each other, in a space that the joint embedding does not learn."""

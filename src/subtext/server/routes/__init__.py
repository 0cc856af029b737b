"""The addresses that the server answers, one file a subject."""

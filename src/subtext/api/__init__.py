"""The public functions, one verb a file: what a notebook, the command line and the server call."""

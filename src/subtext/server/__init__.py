"""An index over HTTP: the FastAPI application, its page, and `subtext.serve`."""

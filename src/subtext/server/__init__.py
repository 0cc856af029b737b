"""`subtext serve`: indexes answered over HTTP, with a page to look at them."""

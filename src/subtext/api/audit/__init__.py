"""`subtext audit`: what a reviewer would like to know of an evaluation, checked and written down."""

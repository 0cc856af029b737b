"""The curator's view: how well the pairs of a data set match, copies and leaks, and pairs to leave out."""

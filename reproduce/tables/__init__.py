"""`subtext table`: the rows of a published table trained under one protocol, and put beside what was printed."""

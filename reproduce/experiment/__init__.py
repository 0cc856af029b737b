"""The experiment on sample weights with a positive control: its sets, hosts and rows, fixed before any training.

`python -m reproduce.evidence --plan` prints the rules below, every row, and the core hours.

Sets. "topics-25" is Flickr8k with all five captions. A caption of an abstract topic belongs to an image of one of the
two, four or eight visual kinds that the topic has; a quarter of the training pairs are abstract. "topics-5" and
"topics-100" have the same topics, but 5 and 100 % abstract training pairs; in "topics-25-mismatched" a fifth of the
training pairs is exchanged at random. All have the same test set: the split val. "openstax" are photographs and
artworks of textbooks with their captions, in five folds, so that every pair is tested once; each pair is put into a
third by how much its caption has in common with a literal description of the same image (the mean rank of shared words
and of the cosine by MiniLM): complementary, middle, literal. Only the main set has all rows.
Hosts learn on cached vectors: "infonce" (width 64; the main host), "linear" (8 numbers, triplets), "pvse-16" and
"pvse-256". The rate falls to a fifth after 2 epochs that do not raise the recall of the split that selects; after 6 of
them the training ends.
Rates: 3e-4 to 3e-2. Two seeds search from the middle towards a better neighbour until the best rate lies between two
worse ones; a row whose best rate is the first or the last is judged "cannot tell here".
Weights have a mean of 1, so that a row differs from the host in the order of its pairs alone; those of the papers'
forms (Gamma, sum, one side alone, combined, random) have the published lambda, and "uniform 196" beside them. HAL,
MITHUN, AMRANI and the losses within modalities have the scale that they are published with. The oracle's weights know
what was planted: abstract pairs count `ORACLE` times; where all are abstract, by the number of kinds. Rows at an
effective sample size have the sign by which their weights reach it on the vectors of the trained host "uniform".
"permuted" gives each pair the weight of another, another permutation for each seed. The two rows "Gamma -1 permuted"
were added after the results of "Gamma -1" were known; they decide no claim.
Primary measure: abstract pairs, exact choice among 20, mean of both directions, against the row's own permutation.
Beside it: the share of the oracle's gain that is recovered, literal pairs, all pairs.
Seeds: ten for the main set on the main host, five elsewhere.
Intervals: crossed random effects of seeds and clusters; a caption's cluster is the image that it was written for, of
OpenStax its book.
"""

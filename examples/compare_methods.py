# %% [markdown]
# # Compare two methods
#
# Is a triplet loss with the hardest negatives better than one with all negatives? One training each cannot tell: two
# seeds of the same method differ, too. This example trains both in three seeds and tests the difference.

# %%
import tempfile
from pathlib import Path

from shapes import write_shapes

import subtext as st

folder = Path(tempfile.mkdtemp())
data = write_shapes(folder / "shapes", variants=2)

# %% [markdown]
# Train each method with seeds 0, 1 and 2, and evaluate each run on the test split. `--per-query` on the command line
# writes what the comparison needs; in Python the result has it.

# %%
NEGATIVES = ("all", "hardest")
results = {negatives: [] for negatives in NEGATIVES}
for negatives in NEGATIVES:
    for seed in range(3):
        run = st.train(
            "vse",
            data=data,
            out=folder / f"{negatives}-{seed}",
            negatives=negatives,
            seed=seed,
            image="tiny",
            image_size=32,
            text="bag",
            embed_dim=32,
            epochs=4,
            batch_size=32,
            min_count=1,
            quiet=True,
        )
        results[negatives].append(st.evaluate(run, split="test", quiet=True))

# %% [markdown]
# Compare them query by query. There are two p-values: over queries, for these trained models, and over runs, for the
# methods. The second needs several seeds. Both are corrected for the number of metrics.

# %%
print(st.compare(results["hardest"], results["all"], metric=("recall@1", "recall@5")))

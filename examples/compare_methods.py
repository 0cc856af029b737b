# %% [markdown]
# # Compare two methods
#
# Is a triplet loss with the hardest negatives better than one with all negatives? One training of each cannot answer
# this question, because two seeds of the same method also differ. This example trains both methods with three seeds
# and tests the difference.

# %%
import tempfile
from pathlib import Path

from shapes import write_shapes

import subtext as st

folder = Path(tempfile.mkdtemp())
data = write_shapes(folder / "shapes", variants=2)

# %% [markdown]
# Train each method with seeds 0, 1 and 2, and evaluate each run on the test split. The comparison needs a value for
# each query. In Python, the result contains these values; on the command line, `--per-query` writes them.

# %%
NEGATIVES = ("all", "hardest")
results = {negatives: [] for negatives in NEGATIVES}
for negatives in NEGATIVES:
    for seed in range(3):
        run = st.train(
            "vse",
            data=data,
            out=folder / f"{negatives}-{seed}",
            options={
                "negatives": negatives,
                "image": "tiny",
                "image_size": 32,
                "text": "bag",
                "embed_dim": 32,
                "min_count": 1,
            },
            plan=st.Plan(epochs=4, batch_size=32),
            run=st.RunConfig(seed=seed),
            quiet=True,
        )
        results[negatives].append(st.evaluate(run, split="test", quiet=True))

# %% [markdown]
# Compare the methods. There are two p-values. The first one is over queries and describes these trained models. The
# second one is over runs and describes the methods; it needs several seeds. Both are corrected for several metrics.

# %%
print(st.compare(results["hardest"], results["all"], metric=("recall@1", "recall@5")))

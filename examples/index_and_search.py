# %% [markdown]
# # Index and search
#
# Build an index, search it with words, with an image, with both and with filters, and change it.

# %%
import tempfile
from pathlib import Path

from shapes import draw, write_shapes

import subtext as st

folder = Path(tempfile.mkdtemp())
data = write_shapes(folder / "shapes")
run = st.train(
    "dual",
    data=data,
    out=folder / "run",
    options={"image": "tiny", "image_size": 32, "embed_dim": 64, "min_count": 1},
    plan=st.Plan(epochs=8, batch_size=32),
    quiet=True,
)

# %% [markdown]
# An index is a folder with the vectors, texts and metadata of all items. It also stores the path of its run.

# %%
library = folder / "library"
print(st.build_index(library, run=run, split="all", quiet=True))

# %% [markdown]
# Open it once and search it many times. In a notebook the answer shows thumbnails.

# %%
index = st.open_index(library)
for hit in index.search("a red circle", top=3):
    print(f"{hit.score:.3f}", hit.id)

# %% [markdown]
# Search with an image, and filter the items by their metadata.

# %%
draw("square", (200, 40, 40), 0).save(folder / "query.png")
print(st.search(library, image=folder / "query.png", where=("shape = circle",), top=3))

# %% [markdown]
# Search with words and an image together, and name words that the results should not match.

# %%
print(st.search(library, "a square", image=folder / "query.png", image_weight=0.3, not_text="red", top=3))

# %% [markdown]
# Delete an item. It disappears from the results immediately.

# %%
first = index.search("a red circle", top=1)[0].id
st.delete_from_index(library, [first])
print(first in [hit.id for hit in st.open_index(library).search("a red circle", top=200)])

"""What a data set is, as one short word: caches and runs name the data that they were made from by it."""

from __future__ import annotations

import hashlib

from subtext.data.dataset import Dataset


def fingerprint(pairs: Dataset) -> str:
    """32 hexadecimal digits that change with any id, text, link, group, split or judgement, and with their order.

    Images count by their id, not by their pixels.
    """
    digest = hashlib.blake2b(digest_size=16)

    def add(name: str, values: list[str]) -> None:
        digest.update(f"{name} {len(values)}\n".encode())
        for value in values:
            coded = value.encode("utf-8", "surrogatepass")
            digest.update(len(coded).to_bytes(8, "little"))
            digest.update(coded)

    for name, items in (("images", pairs.images), ("texts", pairs.texts)):
        add(name, items.ids)
        add("splits", [str(split) for split in items.splits])
        digest.update(items.groups.astype("<i8").tobytes())
    add("words", ["" if value is None else str(value) for value in pairs.texts.values])
    digest.update(pairs.links.astype("<i8").tobytes())
    if pairs.judgements is not None:
        graded = pairs.judgements
        for column, kind in ((graded.texts, "<i8"), (graded.images, "<i8"), (graded.scores, "<f4")):
            digest.update(column.astype(kind).tobytes())
    return digest.hexdigest()

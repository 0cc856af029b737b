"""Whether a data set was prepared as the paper of a table reads it: Politics is the first sentences of its articles."""

from __future__ import annotations

from pathlib import Path

from reproduce.tables.request import Asked
from subtext.data.dataset import Dataset
from subtext.data.readers import politics
from subtext.data.sentences import first_sentences
from subtext.errors import DataError, counted

POLITICS = "politics"
_SEE = "(docs/datasets.md has the commands)"


def require_prepared(asked: Asked) -> None:
    """Raise DataError for the release of Politics itself, which has whole articles, under whatever name it is given.

    Only its first line is read, so that this is told before anything else is done.
    """
    count = asked.table.sentences.get(POLITICS)
    for key, sources in asked.data.items():
        folder = sources.data
        if count is None or folder is None or not politics.recognises(folder.expanduser()):
            continue
        raise DataError(
            f"{asked.table.paper} needs the first {counted(count, 'sentence')} of each article of Politics; {folder} "
            f"has whole articles; write them once with `subtext data prepare {folder} --sentences {count} --out FILE` "
            f"{_SEE}, and give --data {key}=FILE --images {key}={folder}"
        )


def require_sentences(asked: Asked, key: str, pairs: Dataset, path: Path | None) -> None:
    """Raise DataError where most texts are longer than what the table's paper reads of this data set.

    Most, and not one: where sentences end is told by rules here, and whoever cut them by another tool may differ.
    """
    count = asked.table.sentences.get(key)
    if count is None:
        return
    texts = [text for text in pairs.texts.values if isinstance(text, str)]
    longer = sum(first_sentences(text, count) != text.strip() for text in texts)
    if 2 * longer > len(texts):
        raise DataError(
            f"{asked.table.paper} needs the first {counted(count, 'sentence')} of each text of {key}; of "
            f"{len(texts):,} texts of {path} {longer:,} have more; cut them with `subtext data prepare {path} "
            f"--sentences {count} --out FILE` {_SEE}"
        )

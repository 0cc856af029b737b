"""What the experiment on sample weights means for a user: a paragraph of docs/choosing.md.

It is made from docs/evidence.json.

python -m reproduce.advice            writes the paragraph
python -m reproduce.advice --check    exit code 1 when it is out of date
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
PAGE, REPORT = ROOT / "docs" / "choosing.md", ROOT / "docs" / "evidence.json"
BEGIN, END = "   <!-- weights: made by `python -m reproduce.advice` -->", "   <!-- end of weights -->"
MAIN, UNIFORM, ORACLE = "topics-25-infonce", "uniform", "oracle"
FORMS = {
    "Gamma -1": "as published (the difference of both modalities, lambda 196)",
    **{f"difference {size}": f"of the difference at an effective size of {size} %" for size in (95, 85, 75)},
    **{f"images {size}": f"of images at an effective size of {size} %" for size in (95, 85, 75)},
}
MEASURED = {
    f"{score} {form}": f"{score.upper()} {words}"
    for score in ("diversity", "discrepancy")
    for form, words in FORMS.items()
}
"""Row -> its words."""


def paragraph(report: Mapping[str, Any]) -> str:
    """When to weight, how strongly, and what it costs; rows that are not finished are left out.

    Raises KeyError without uniform weights and the oracle on the main set.
    """
    found = report["experiment"][MAIN]
    rows, seeds = found["rows"], len(found["seeds"])
    plain, oracle = rows[UNIFORM], rows[ORACLE]
    before, after = (float(np.mean(row["abstract"])) for row in (plain, oracle))
    edge = "" if oracle["inner"] else " Its best rate was the smallest or the largest that was tried."
    sentences = [
        "Weights decide which pairs a model serves; they add nothing for free. On Flickr8k with planted topics "
        f"({seeds} seeds, right choices among 20 in per cent, intervals of 95 %), weights that know the truth and "
        f"count an abstract pair 3.2 times raise abstract pairs from {before:.1f} to {after:.1f} "
        f"({_above(oracle, 'abstract')}) and change literal pairs by {_above(oracle, 'literal')}, all pairs by "
        f"{_above(oracle, 'all')}.{edge}"
    ]
    finished = [row for row in MEASURED if row in rows]
    gained = [row for row in finished if rows[row]["above uniform"]["abstract"]["low"] > 0]
    if gained:
        best = max(gained, key=lambda row: rows[row]["above uniform"]["abstract"]["difference"])
        sentences.append(
            f"Of {len(finished)} forms of the papers' weights by neighbours, {len(gained)} raised abstract pairs above "
            f"equal weights; {MEASURED[best]} the most: {_above(rows[best], 'abstract')}, and "
            f"{_above(rows[best], 'literal')} for literal pairs."
        )
    elif finished:
        sentences.append(
            f"None of {len(finished)} forms of the papers' weights by neighbours had a gain on abstract pairs whose "
            "interval is above 0."
        )
    sentences.append(
        "So weight where people search for what pairs mean rather than for what is seen, and where you know which "
        "pairs those are: from a person's labels, a section, a date."
    )
    sentences.append(
        "How strongly: start at an effective size of 95 % (`python -m reproduce.weights report` prints it), go on "
        "while literal pairs of your validation split stay good enough, and compare with the same weights permuted "
        "(`control=permuted`)."
    )
    if finished:
        epochs = [rows[row]["seconds"] / rows[row]["epochs"] for row in (UNIFORM, *finished)]
        sentences.append(f"An epoch with such weights took {np.mean(epochs[1:]) / epochs[0]:.1f} times as long.")
    return " ".join([*sentences, "[Evidence](evidence.md) has all rows."])


def _above(row: Mapping[str, Any], kind: str) -> str:
    found = row["above uniform"][kind]
    return f"{found['difference']:+.1f} [{found['low']:+.1f}, {found['high']:+.1f}]"


def with_paragraph(page: str, report: Mapping[str, Any]) -> str:
    """The page with the paragraph in its place."""
    before, rest = page.split(BEGIN)
    lines = textwrap.wrap(paragraph(report), 147, break_long_words=False, break_on_hyphens=False)
    return "\n".join([f"{before}{BEGIN}", *(f"   {line}" for line in lines), f"{END}{rest.split(END)[1]}"])


def main() -> None:
    """Write the paragraph, or check it."""
    page = PAGE.read_text(encoding="utf-8")
    made = with_paragraph(page, json.loads(REPORT.read_text(encoding="utf-8")))
    if "--check" in sys.argv[1:]:
        sys.exit(0 if made == page else f"{PAGE} is out of date; run python -m reproduce.advice")
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()

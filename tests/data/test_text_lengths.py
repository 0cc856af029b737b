"""Texts longer than a model of open_clip takes; for the other inputs see flow/test_asymmetry."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from subtext.data.text import OpenClipInput, cut_note, too_long

pytestmark = pytest.mark.contract


class BytePairs:
    """Tokens as open_clip's tokenisers give them: a byte each, cut and filled up to the room, marks kept.

    last  whether the last place is a mark, too
    """

    def __init__(self, fill: int, *, last: bool = False) -> None:
        self.fill, self.last = fill, last

    def __call__(self, texts: list[str], context_length: int = 9) -> torch.Tensor:
        room = context_length - self.last
        rows = [[300, *text.encode()[: room - 2], 301] for text in texts]
        end = [302] if self.last else []
        return torch.tensor([row + [self.fill] * (room - len(row)) + end for row in rows])


@pytest.mark.parametrize("read", [BytePairs(0), BytePairs(301), BytePairs(0, last=True)], ids=["0", "end", "marked"])
def test_truncated_open_clip_texts_are_counted(read: BytePairs, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("open_clip")
    module.get_tokenizer = lambda name: read  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "open_clip", module)
    reads, most = OpenClipInput("small"), 6 if read.last else 7
    for length in range(40):
        assert too_long(reads, ["a" * length]) == (length > most), length
    note = cut_note(reads, ["a", "", "a" * most, "a" * (most + 1), "a" * 99, None])
    assert note == "2 texts of 6 are longer than the 9 tokens that the model takes: what is beyond is not read"

"""What people hand to a model."""

from __future__ import annotations

import pytest
import small

from subtext.errors import RequirementError


def test_one_string_is_no_list_of_texts() -> None:
    model = small.setup().model.eval()
    with pytest.raises(RequirementError, match=r"a list of items; it got one str, 'red wet'; put it in a list"):
        model.embed_texts("red wet")
    assert len(model.embed_texts(["red wet", "blue"])) == 2

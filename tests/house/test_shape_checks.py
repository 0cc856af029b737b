"""The shape checks are really on: without this test, a hook that does nothing would look like a clean suite."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import TypeCheckError

from subtext.core import Epoch
from subtext.ops.numerics import masked_mean, masked_softmax

pytestmark = pytest.mark.contract


def test_wrong_number_of_axes_raises():
    with pytest.raises(TypeCheckError):
        masked_mean(torch.zeros(3, 4), None)


def test_axes_of_one_name_must_have_one_size():
    with pytest.raises(TypeCheckError):
        masked_mean(torch.zeros(3, 4, 5), torch.ones(3, 5, dtype=torch.bool))
    assert masked_mean(torch.zeros(3, 4, 5), torch.ones(3, 4, dtype=torch.bool)).shape == (3, 5)


def test_wrong_element_type_raises():
    with pytest.raises(TypeCheckError):
        masked_softmax(torch.zeros(3, 4, dtype=torch.int64), None)


def test_dataclass_fields_are_type_checked():
    with pytest.raises(TypeCheckError):
        Epoch(number="first", seed=0)  # type: ignore[arg-type]

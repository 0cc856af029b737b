"""Products from codes of 8 bits, and the bound of their errors."""

from __future__ import annotations

import numpy as np
import pytest

from subtext.ops.compiled.coded_products import Codes


@pytest.mark.parametrize("case", ["unit", "one large column", "long", "wide", "zeros", "equal"])
def test_products_are_off_by_no_more_than_their_bound(case: str) -> None:
    random = np.random.default_rng(0)
    vectors = random.standard_normal((300, 2500 if case == "wide" else 48)).astype(np.float32)
    if case == "one large column":
        vectors[:, 3] += 90
    elif case == "long":
        vectors *= 1e4
    elif case == "zeros":
        vectors[::2] = 0
    elif case == "equal":
        vectors[:] = vectors[0]
    if case in ("unit", "wide"):
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    codes = Codes.of(vectors)
    for query in (vectors[1], vectors[1] * 1e-6, random.standard_normal(vectors.shape[1]).astype(np.float32)):
        exact = vectors.astype(np.float64) @ query.astype(np.float64)
        products, errors = codes.products(query)
        assert (np.abs(products - exact) <= errors).all()
        length = np.linalg.norm(query) * np.linalg.norm(vectors - vectors.mean(axis=0), axis=1).max()
        assert errors.max() <= 0.05 * length + 1e-4 * np.abs(exact).max() + 1e-12, "the bound is of use"
    assert not codes.products(np.zeros(vectors.shape[1], np.float32))[0].any()

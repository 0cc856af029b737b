"""Sums of sparse products over groups: compiled and plain path agree with a dense product, whatever is asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from subtext.errors import ShapeError
from subtext.ops.compiled import group_products as ops
from subtext.ops.compiled.group_products import Terms, group_products
from subtext.ops.sparse import Sparse

pytestmark = pytest.mark.identity


def sparse(dense: np.ndarray) -> Sparse:
    rows, columns = np.nonzero(dense)
    return Sparse.of_entries(rows, columns, dense[rows, columns], count=len(dense), width=dense.shape[1])


def terms(*, kinds: int = 0, references: int = 30, candidates: int = 41, seed: int = 0) -> tuple[Terms, np.ndarray]:
    """Random terms, and what they come to; group 3 has no reference, some features nobody."""
    draw = np.random.default_rng(seed)
    left, right = (draw.random((count, 25)) * (draw.random((count, 25)) < 0.2) for count in (references, candidates))
    groups = draw.integers(0, 7, references)
    groups[groups == 3] = 4
    decay, mine, theirs = None, None, None
    met = left @ right.T
    if kinds:
        decay = draw.random((4, kinds)).astype(np.float32)
        mine, theirs = draw.integers(0, 4, references), draw.integers(0, kinds, candidates)
        met = met * decay[mine][:, theirs]
    wanted = np.stack([met[groups == group].sum(axis=0) for group in range(7)])
    return Terms(sparse(left), groups, sparse(right), 7, mine, theirs, decay), wanted


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("kinds", [0, 5, 300])
def test_group_products_equal_dense_product(kernel, kinds):
    made, wanted = terms(kinds=kinds)
    np.testing.assert_allclose(group_products(made, kernel=kernel), wanted, atol=1e-5)


def test_thread_count_changes_no_bit():
    made, _ = terms(kinds=5, references=400)
    made = replace(made, groups=np.arange(400) % 150, count=150)
    one, three = (group_products(made, kernel=True, threads=threads) for threads in (1, 3))
    assert np.array_equal(one, three)


def test_plain_path_does_not_depend_on_block_size(monkeypatch):
    made, wanted = terms(kinds=5)
    whole = group_products(made, kernel=False)
    monkeypatch.setattr(ops, "_PLAIN_MATCHES", 1)
    assert np.array_equal(group_products(made, kernel=False), whole)
    np.testing.assert_allclose(whole, wanted, atol=1e-5)


@pytest.mark.parametrize("kernel", [False, True])
def test_group_products_fill_half_precision_output(kernel):
    made, wanted = terms(kinds=5)
    out = np.full(wanted.shape, np.nan, dtype=np.float16)
    assert group_products(made, out=out, kernel=kernel) is out
    np.testing.assert_allclose(out, wanted, atol=2e-3)


@pytest.mark.parametrize("kinds", [0, 5])
def test_subset_equals_slice_of_full_product(kinds):
    made, wanted = terms(kinds=kinds)
    rows, columns = np.array([6, 3, 0, 6]), np.array([40, 0, 7])
    np.testing.assert_allclose(group_products(made.take(rows, columns)), wanted[rows][:, columns], atol=1e-6)


def test_inconsistent_shapes_raise():
    made, _ = terms()
    with pytest.raises(ShapeError, match="25 and 3"):
        replace(made, candidates=sparse(np.ones((2, 3))))
    with pytest.raises(ShapeError, match=r"a group in \[0, 2\) for each of 30"):
        replace(made, count=2)
    with pytest.raises(ShapeError, match=r"\(7, 41\); it got \(7, 40\)"):
        group_products(made, out=np.empty((7, 40), np.float32))


def test_sparse_rows_keep_entry_order():
    made = Sparse.of_entries(np.array([1, 0, 1]), np.array([0, 2, 1]), np.array([1.0, 2.0, 3.0]), count=3, width=4)
    assert made.starts.tolist() == [0, 1, 3, 3] and made.columns.tolist() == [2, 0, 1]
    assert made.values.tolist() == [2, 1, 3] and len(made) == 3

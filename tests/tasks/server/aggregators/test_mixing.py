"""Rows of weights: dense and sparse ones are read alike."""

import pytest
import torch

from tasks.server.aggregators.mixing import Mixing, SparseRow, as_matrix, count_positive, positive, stored_weights

FULL, ROW = [0.0, 0.25, 0.0, 0.75, 0.0], SparseRow(5, [1, 3], [0.25, 0.75])


def test_a_sparse_row_reads_like_a_list():
    assert list(ROW) == FULL and len(ROW) == 5 and ROW[-2] == 0.75 and list(ROW[1:4]) == FULL[1:4]
    for index in (5, -6):
        with pytest.raises(IndexError):
            ROW[index]


def test_positions_and_weights_above_zero():
    zero = SparseRow(3, [0, 2], [0.0, 1.0])
    assert positive(ROW) == positive(FULL) == [1, 3] and positive(zero) == [2]
    assert count_positive(ROW) == count_positive(FULL) == 2 and count_positive(zero) == 1
    assert list(stored_weights(ROW)) == [0.25, 0.75] and stored_weights(FULL) is FULL


def test_rows_of_both_kinds_are_one_matrix():
    expected = torch.tensor([FULL, FULL], dtype=torch.float64)
    assert torch.equal(as_matrix([ROW, FULL]), expected) and torch.equal(as_matrix([FULL, FULL]), expected)


def test_members_name_the_layer_of_a_tensor_and_the_rest_has_the_models_rows():
    mixing = Mixing(("global",), [FULL], {"bn": [ROW]}, {"bn.weight": "bn"})
    assert mixing.rows_of("bn.weight") == [ROW] and mixing.rows_of("bn.num_batches_tracked") == [FULL]
    prefixes = Mixing(("global",), [FULL], {"bn.": [ROW]})
    assert prefixes.rows_of("bn.num_batches_tracked") == [ROW]

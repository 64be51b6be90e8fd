"""What is peculiar to plain PyTorch; that it is right is shown beside the extension in test_tanh_cpu.py."""

from __future__ import annotations

import pytest
import torch

from attent.ops.tanh_score import eager


@pytest.mark.parametrize("size", [1.0, 50.0])
@pytest.mark.parametrize("chunk", [1, 300, 800])
def test_the_number_of_rows_at_a_time_does_not_matter(chunk: int, size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, v = (torch.randn(shape, dtype=torch.float64) for shape in ((2, 3, 11, 5), (2, 3, 13, 5), (3, 5)))
    inputs = (query * size, key * size, v, torch.randn(2, 3, 11, 13, dtype=torch.float64))
    expected = [eager.scores(*inputs[:3]), *eager.gradients(*inputs)]
    monkeypatch.setattr(eager, "CHUNK", chunk)
    torch.testing.assert_close([eager.scores(*inputs[:3]), *eager.gradients(*inputs)], expected)


def test_a_chunk_is_all_that_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key = torch.randn(1, 2, 64, 8), torch.randn(1, 2, 32, 8)
    monkeypatch.setattr(eager, "CHUNK", 4 * key.numel())
    observed = {(rows.stop - rows.start, rest.untyped_storage().data_ptr()) for rows, rest in eager._rests(query, key)}
    assert len(observed) == 1
    assert observed.pop()[0] == 4

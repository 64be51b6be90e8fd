from __future__ import annotations

from dataclasses import replace

import torch

from attent.data.batches import Batch
from attent.experiments.benchmarking.plain.transformer import PlainTransformer
from attent.models.transformer_settings import TransformerSettings

SETTINGS = TransformerSettings(encoder_layers=1, decoder_layers=2, width=8, feed_forward=12, heads=2)


def batch(source: list[list[int]], target: list[list[int]]) -> Batch:
    sources, targets = torch.tensor(source), torch.tensor(target)
    lengths = [(tensor != 0).sum(1) for tensor in (sources, targets)]
    return Batch(sources, lengths[0], targets, targets, lengths[1], int(lengths[1].sum()))


@torch.no_grad()
def test_no_step_sees_later_tokens_or_padding() -> None:
    model = PlainTransformer(SETTINGS, 13).eval()
    given = batch([[5, 6, 7, 0, 0], [4, 5, 9, 8, 7]], [[2, 5, 6, 7], [2, 4, 8, 9]])
    logits = model(given)
    assert logits.shape == (2, 4, 13)
    later = given.target_in.clone()
    later[:, 3] = 11
    torch.testing.assert_close(model(replace(given, target_in=later))[:, :3], logits[:, :3])
    alone = batch([[5, 6, 7]], [[2, 5, 6, 7]])
    torch.testing.assert_close(model(alone)[0], logits[0])


def test_it_is_as_large_as_ours() -> None:
    from attent.experiments.benchmarking.training import transformer
    from attent.models.settings import build

    def size(model: torch.nn.Module) -> int:
        return sum(parameter.numel() for parameter in model.parameters())

    theirs, ours = size(PlainTransformer(transformer("tiny"), 500)), size(build(transformer("tiny"), 500, 500))
    assert abs(theirs - ours) < 0.01 * ours

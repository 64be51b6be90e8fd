from __future__ import annotations

from dataclasses import replace

import torch

from attent.data.batches import Batch
from attent.experiments.benchmarking.plain.rnn import PlainRnn
from attent.models.rnn_settings import RnnSettings

SETTINGS = RnnSettings(embedding_width=6, width=8, encoder_width=5)


def batch(source: list[list[int]], target: list[list[int]]) -> Batch:
    sources, targets = torch.tensor(source), torch.tensor(target)
    lengths = [(tensor != 0).sum(1) for tensor in (sources, targets)]
    return Batch(sources, lengths[0], targets, targets, lengths[1], int(lengths[1].sum()))


@torch.no_grad()
def test_packed_sequences_are_read_without_their_padding() -> None:
    model = PlainRnn(SETTINGS, 13, packed=True).eval()
    given = batch([[5, 6, 7, 0, 0], [4, 5, 9, 8, 7]], [[2, 5, 6, 7], [2, 4, 8, 9]])
    logits = model(given)
    assert logits.shape == (2, 4, 13)
    torch.testing.assert_close(model(batch([[5, 6, 7]], [[2, 5, 6, 7]]))[0], logits[0])
    later = given.target_in.clone()
    later[:, 3] = 11
    torch.testing.assert_close(model(replace(given, target_in=later))[:, :3], logits[:, :3])


@torch.no_grad()
def test_without_padding_packed_or_not_is_the_same() -> None:
    packed, padded = (PlainRnn(SETTINGS, 13, packed=packed).eval() for packed in (True, False))
    padded.load_state_dict(packed.state_dict())
    given = batch([[5, 6, 7], [4, 5, 9]], [[2, 5], [2, 4]])
    torch.testing.assert_close(packed(given), padded(given))


def test_it_is_about_as_large_as_ours() -> None:
    from attent.experiments.benchmarking.training import rnn
    from attent.models.settings import build

    def size(model: torch.nn.Module) -> int:
        return sum(parameter.numel() for parameter in model.parameters())

    theirs, ours = size(PlainRnn(rnn(), 500, packed=True)), size(build(rnn(), 500, 500))
    assert abs(theirs - ours) < 0.05 * ours

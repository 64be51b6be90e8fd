from __future__ import annotations

import pytest
import torch

from attent.models.rnn import RNN
from attent.models.rnn_local import Local
from attent.models.settings import RnnSettings

LENGTHS = torch.tensor([9, 4])


@torch.no_grad()
def test_monotonic_centres_are_the_steps() -> None:
    steps = torch.tensor([[3, 4], [0, 1]])
    mask, weighting = Local("m", 2, 5)(torch.randn(2, 2, 5), LENGTHS, steps)
    assert torch.equal(mask.centres, steps)
    assert weighting is None
    assert not list(Local("m", 2, 5).parameters())


@torch.no_grad()
def test_predicted_centres_lie_within_the_source() -> None:
    local = Local("p", 4, 5)
    mask, weighting = local(100 * torch.randn(2, 50, 5), LENGTHS, torch.zeros(2, 50))
    assert weighting.centres is mask.centres
    assert weighting.sigma == 2.0
    assert (mask.centres >= 0).all()
    assert (mask.centres <= LENGTHS[:, None]).all()
    torch.nn.init.zeros_(local.v.weight)
    # nothing known: the middle
    assert torch.equal(local.centres(torch.randn(2, 1, 5), LENGTHS, torch.zeros(2, 1)), torch.tensor([[4.5], [2.0]]))


def test_centres_are_not_rounded_to_16_bits() -> None:
    local = Local("p", 4, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert local.centres(torch.randn(2, 3, 5).bfloat16(), LENGTHS, torch.zeros(2, 3)).dtype == torch.float32


@torch.no_grad()
def test_a_step_far_behind_the_end_sees_nothing() -> None:
    model = RNN(RnnSettings(attention="luong", local="m", local_window=1, width=8, embedding_width=4), 13, 11).eval()
    state = model.start(model.encode(torch.randint(4, 13, (1, 2)), torch.tensor([2])))
    for step in range(5):
        features, state = model.step(state, torch.tensor([5]))
        assert features.isfinite().all()
        seen = model.decoder.cross_attention.look(state.layers[-1].hidden[:, None], state.source, state.lengths, torch.tensor([[step]]))
        assert bool(seen.call.allowed(seen.call.pairs()).any()) == (step <= 2)


def test_it_is_luongs() -> None:
    with pytest.raises(ValueError, match='local needs attention = "luong", got "bahdanau"'):
        RnnSettings(local="m")

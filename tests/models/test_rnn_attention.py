import math

import pytest
import torch

from attent.attention.capture.watch import watch
from attent.attention.scores import SCORES
from attent.models.model import Memory
from attent.models.rnn import RNN
from attent.models.rnn_attention import Local, RecurrentAttention
from attent.models.settings import RnnSettings

LENGTHS = torch.tensor([3, 5])


@pytest.mark.parametrize("score", SCORES)
@torch.no_grad()
def test_any_score_serves_by_name_and_hides_padding(score: str) -> None:
    attention, memory, queries = RecurrentAttention(6, 6, score), torch.randn(2, 5, 6), torch.randn(2, 4, 6)
    source = attention.cache_kv(Memory(memory, LENGTHS))
    context = attention.context(attention.prepare(queries, source, LENGTHS), queries)
    assert context.shape == (2, 4, 6)
    memory[0, 3:] = 7.0
    source = attention.cache_kv(Memory(memory, LENGTHS))
    torch.testing.assert_close(attention.context(attention.prepare(queries, source, LENGTHS), queries), context)


@torch.no_grad()
def test_a_call_checked_once_serves_one_query_after_another() -> None:
    attention, queries = RecurrentAttention(7, 6, "additive", 3), torch.randn(2, 4, 7)
    source = attention.cache_kv(Memory(torch.randn(2, 5, 6), LENGTHS))
    whole = attention.context(attention.prepare(queries, source, LENGTHS), queries)
    prepared = attention.prepare(queries[:, :1], source, LENGTHS)
    one_by_one = [attention.context(prepared, query[:, None]) for query in queries.unbind(1)]
    torch.testing.assert_close(torch.cat(one_by_one, 1), whole)


@torch.no_grad()
def test_the_map_is_of_the_queries_told() -> None:
    attention, queries = RecurrentAttention(6, 6, "dot"), torch.randn(2, 4, 6)
    source = attention.cache_kv(Memory(torch.randn(2, 5, 6), LENGTHS))
    with watch(attention) as captured:
        attention.report_map(queries, queries, source, LENGTHS)
    weights = captured[""].dense()
    assert weights.shape == (2, 1, 4, 5)
    torch.testing.assert_close(
        (weights @ source.value)[:, 0], attention.context(attention.prepare(queries, source, LENGTHS), queries)
    )


@torch.no_grad()
def test_a_context_by_hand() -> None:
    attention = RecurrentAttention(1, 1, "general")
    attention.score.weight.fill_(math.log(3))
    memory = Memory(torch.tensor([[[0.0], [1.0], [9.0]]]), torch.tensor([2]))
    query = torch.ones(1, 1, 1)
    # scores 0 and ln 3, weights 1/4 and 3/4; the third is padding
    context = attention.context(attention.prepare(query, attention.cache_kv(memory), memory.lengths), query)
    assert context.item() == pytest.approx(0.75)


@torch.no_grad()
def test_a_scaled_score_is_divided_by_the_root_of_the_memorys_width() -> None:
    scaled, plain = RecurrentAttention(6, 9, "general", scaled=True), RecurrentAttention(6, 9, "general")
    plain.load_state_dict({"score.weight": scaled.get_parameter("score.weight") / 3})
    memory, queries = torch.randn(2, 5, 9), torch.randn(2, 4, 6)
    contexts = []
    for attention in (scaled, plain):
        source = attention.cache_kv(Memory(memory, LENGTHS))
        contexts.append(attention.context(attention.prepare(queries, source, LENGTHS), queries))
    torch.testing.assert_close(*contexts)
    parameters = scaled.fused_parameters
    assert parameters is not None
    torch.testing.assert_close(parameters[0], plain.get_parameter("score.weight"))


SOURCE_LENGTHS = torch.tensor([9, 4])


@torch.no_grad()
def test_monotonic_centres_are_the_steps() -> None:
    steps = torch.tensor([[3, 4], [0, 1]])
    mask, weighting = Local("m", 2, 5)(torch.randn(2, 2, 5), SOURCE_LENGTHS, steps)
    assert torch.equal(mask.centers, steps)
    assert weighting is None
    assert not list(Local("m", 2, 5).parameters())


@torch.no_grad()
def test_predicted_centres_lie_within_the_source() -> None:
    local = Local("p", 4, 5)
    mask, weighting = local(100 * torch.randn(2, 50, 5), SOURCE_LENGTHS, torch.zeros(2, 50))
    assert weighting.centers is mask.centers
    assert weighting.sigma == 2.0
    assert (mask.centers >= 0).all()
    assert (mask.centers <= SOURCE_LENGTHS[:, None]).all()
    torch.nn.init.zeros_(local.v.weight)
    # nothing known: the middle
    assert torch.equal(
        local.centers(torch.randn(2, 1, 5), SOURCE_LENGTHS, torch.zeros(2, 1)), torch.tensor([[4.5], [2.0]])
    )


def test_centres_are_not_rounded_to_16_bits() -> None:
    local = Local("p", 4, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert local.centers(torch.randn(2, 3, 5).bfloat16(), SOURCE_LENGTHS, torch.zeros(2, 3)).dtype == torch.float32


@torch.no_grad()
def test_a_step_far_behind_the_end_sees_nothing() -> None:
    model = RNN(RnnSettings(attention="luong", local="m", local_window=1, width=8, embedding_width=4), 13, 11).eval()
    state = model.start(model.encode(torch.randint(4, 13, (1, 2)), torch.tensor([2])))
    for step in range(5):
        features, state = model.step(state, torch.tensor([5]))
        assert features.isfinite().all()
        observed = model.decoder.cross_attention.prepare(
            state.layers[-1].hidden[:, None], state.source, state.lengths, torch.tensor([[step]])
        )
        assert bool(observed.call.allowed(observed.call.pairs()).any()) == (step <= 2)


def test_it_is_luongs() -> None:
    with pytest.raises(ValueError, match='local needs attention = "luong", got "bahdanau"'):
        RnnSettings(local="m")

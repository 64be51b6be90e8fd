import math

import pytest
import torch

from attent.attention.capture.watch import watch
from attent.attention.scores import SCORES
from attent.models.model import Memory
from attent.models.rnn_attention import RecurrentAttention

LENGTHS = torch.tensor([3, 5])


@pytest.mark.parametrize("score", SCORES)
@torch.no_grad()
def test_any_score_serves_by_name_and_hides_padding(score: str) -> None:
    attention, memory, queries = RecurrentAttention(6, 6, score), torch.randn(2, 5, 6), torch.randn(2, 4, 6)
    source = attention.remember(Memory(memory, LENGTHS))
    context = attention.context(attention.look(queries, source, LENGTHS), queries)
    assert context.shape == (2, 4, 6)
    memory[0, 3:] = 7.0
    source = attention.remember(Memory(memory, LENGTHS))
    torch.testing.assert_close(attention.context(attention.look(queries, source, LENGTHS), queries), context)


@torch.no_grad()
def test_a_call_checked_once_serves_one_query_after_another() -> None:
    attention, queries = RecurrentAttention(7, 6, "additive", 3), torch.randn(2, 4, 7)
    source = attention.remember(Memory(torch.randn(2, 5, 6), LENGTHS))
    whole = attention.context(attention.look(queries, source, LENGTHS), queries)
    prepared = attention.look(queries[:, :1], source, LENGTHS)
    one_by_one = [attention.context(prepared, query[:, None]) for query in queries.unbind(1)]
    torch.testing.assert_close(torch.cat(one_by_one, 1), whole)


@torch.no_grad()
def test_the_map_is_of_the_queries_told() -> None:
    attention, queries = RecurrentAttention(6, 6, "dot"), torch.randn(2, 4, 6)
    source = attention.remember(Memory(torch.randn(2, 5, 6), LENGTHS))
    with watch(attention) as seen:
        attention.tell(queries, source, LENGTHS)
    weights = seen[""].dense()
    assert weights.shape == (2, 1, 4, 5)
    torch.testing.assert_close((weights @ source.value)[:, 0], attention.context(attention.look(queries, source, LENGTHS), queries))


@torch.no_grad()
def test_a_context_by_hand() -> None:
    attention = RecurrentAttention(1, 1, "general")
    attention.score.weight.fill_(math.log(3))
    memory = Memory(torch.tensor([[[0.0], [1.0], [9.0]]]), torch.tensor([2]))
    query = torch.ones(1, 1, 1)
    # scores 0 and ln 3, weights 1/4 and 3/4; the third is padding
    context = attention.context(attention.look(query, attention.remember(memory), memory.lengths), query)
    assert context.item() == pytest.approx(0.75)

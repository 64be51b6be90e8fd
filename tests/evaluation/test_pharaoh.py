import pytest
import torch

from attent.attention.watch import watch
from attent.data.tokenizer import START
from attent.errors import UnknownNameError
from attent.evaluation.pharaoh import links, looked_at, pharaoh, words
from attent.models.transformer import Transformer
from attent.models.transformer_settings import TransformerSettings


@pytest.mark.parametrize(
    ("text", "pieces", "expected"),
    [
        ("ab c", list("ab c"), [0, 0, None, 1]),
        (" a\u202fb ", list(" a\u202fb "), [None, 0, None, 1, None]),
        ("un known ab", ["▁un", "▁kno", "wn", "▁a", "b"], [0, 1, 1, 2, 2]),
        ("unknown ab", ["un@@", "known", "a@@", "b"], [0, 0, 1, 1]),
        ("unknown ab", ["un", "##known", "ab", ""], [0, 0, 1, None]),
        ("# ## b", ["#", "##", "b"], [0, 1, 2]),
        ("one two three", ["one", "⁇", "three"], [0, 1, 2]),
        ("", [], []),
    ],
)
def test_each_piece_lies_in_a_word(text: str, pieces: list[str], expected: list[int | None]) -> None:
    assert words(text, pieces) == expected


def test_worked_by_hand() -> None:
    weights = torch.tensor([[0.5, 0.0, 0.5, 0.0], [0.0, 0.9, 0.1, 0.0], [0.0, 0.9, 0.1, 0.0], [0.1, 0.3, 0.2, 0.4]])
    # of source word 0 the pieces 0 and 2; piece 1 is a space; the first target word looks 1.1 at word 0, 0 at word 1
    found = links(weights, [0, None, 0, 1], [0, 0, None, 1])
    assert found == [(0, 0), (1, 1)]
    assert links(weights, [None] * 4, [0] * 4) == []
    assert links(torch.zeros(1, 2), [0, 1], [0]) == []


def test_the_format() -> None:
    assert pharaoh([(2, 0), (0, 1), (10, 2)]) == "0-1 2-0 10-2"
    assert pharaoh([]) == ""


def model() -> Transformer:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=2, width=16, feed_forward=17, heads=2)
    return Transformer(settings, 11, 11).eval()


def test_a_pair_is_looked_at_as_if_it_were_alone() -> None:
    made = model()
    sources, targets = [[4, 5, 6], [], [7, 8, 9, 10, 4], [5]], [[6, 7], [8], [], [4, 4, 4]]
    maps = looked_at(made, sources, targets)
    assert [tuple(single.shape) for single in maps] == [(2, 3), (1, 0), (0, 5), (3, 1)]
    with torch.no_grad(), watch(made) as seen:
        made.decode(made.encode(torch.tensor(sources[:1]), torch.tensor([3])), torch.tensor([[START, 6, 7]]))
    torch.testing.assert_close(maps[0], seen["decoder.layers.1.cross_attention"].dense()[0].mean(0)[:2])
    first = looked_at(made, sources, targets, name="decoder.layers.0.cross_attention")
    assert not torch.allclose(first[0], maps[0])


def test_an_unknown_attention_is_named() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'decoder\.layers\.1\.cross_attention'"):
        looked_at(model(), [[4]], [[5]], name="decoder.layer.1.cross_attention")

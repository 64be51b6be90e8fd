import torch

from attent.alignment.aligner import align, tokenize_pair
from attent.alignment.forced_decoding import AttentionSelector
from attent.attention.capture.watch import watch
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.tasks.dates.corpus import tokenize_dates
from attent.text.tokenizer import BOS, CharTokenizer

TOKENIZER = CharTokenizer("abcde -0123456789")
BOTH = TOKENIZER, TOKENIZER


def make_model() -> Transformer:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=2, width=16, feed_forward=17, heads=2)
    return Transformer(settings, TOKENIZER.size, TOKENIZER.size).eval()


def test_words_are_what_spaces_part() -> None:
    tokenized = tokenize_pair("ab c", "d ee", BOTH)
    assert (tokenized.source, tokenized.target) == (TOKENIZER.encode("ab c"), TOKENIZER.encode("d ee"))
    assert (tokenized.source_words, tokenized.target_words) == ([0, 0, None, 1], [0, None, 1, 1])


def test_tokens_are_taken_one_by_one() -> None:
    tokenized = tokenize_pair("ab c", "d", BOTH, "tokens")
    assert (list(tokenized.source_words), list(tokenized.target_words)) == ([0, 1, 2, 3], [0])


def test_of_dates_digits_are_linked_to_characters() -> None:
    tokenized = tokenize_dates("3 a", "2026-03-03", BOTH)
    assert (list(tokenized.source_words), tokenized.target_words) == ([0, 1, 2], [0, 1, 2, 3, None, 5, 6, None, 8, 9])
    assert [target for _, target in align(make_model(), [tokenized])[0]] == [0, 1, 2, 3, 5, 6, 8, 9]


def test_links_are_those_of_the_map_itself() -> None:
    model = make_model()
    pair = tokenize_pair("ab c", "d ee", BOTH)
    with torch.no_grad(), watch(model) as captured:
        inputs = torch.tensor([[BOS, *pair.target]])
        model.decode(model.encode(torch.tensor([pair.source]), torch.tensor([4])), inputs)
    weights = captured["decoder.layers.0.cross_attention"].dense()[0, 1]  # (5, 4)
    for about, offset in (("produced", 0), ("read", 1)):
        rows = weights[offset:], weights[offset + 2 :][:2].mean(0)
        expected = [(int(row[3] > row[0] + row[1]), word) for word, row in enumerate((rows[0][0], rows[1]))]
        assert align(model, [pair], AttentionSelector(0, 1, about)) == [expected]
    combined = align(model, [pair], threshold=0.0)
    assert combined == [[(0, 0), (1, 0), (0, 1), (1, 1)]]


def test_an_empty_side_has_no_links() -> None:
    pairs = [tokenize_pair(*texts, BOTH) for texts in (("", "a"), ("a", ""), (" ", "a"), ("a", "b"))]
    assert align(make_model(), pairs) == [[], [], [], [(0, 0)]]

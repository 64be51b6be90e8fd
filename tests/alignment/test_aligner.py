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


def model() -> Transformer:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=2, width=16, feed_forward=17, heads=2)
    return Transformer(settings, TOKENIZER.size, TOKENIZER.size).eval()


def test_words_are_what_spaces_part() -> None:
    found = tokenize_pair("ab c", "d ee", BOTH)
    assert (found.source, found.target) == (TOKENIZER.encode("ab c"), TOKENIZER.encode("d ee"))
    assert (found.source_words, found.target_words) == ([0, 0, None, 1], [0, None, 1, 1])


def test_tokens_are_taken_one_by_one() -> None:
    found = tokenize_pair("ab c", "d", BOTH, "tokens")
    assert (list(found.source_words), list(found.target_words)) == ([0, 1, 2, 3], [0])


def test_of_dates_digits_are_linked_to_characters() -> None:
    found = tokenize_dates("3 a", "2026-03-03", BOTH)
    assert (list(found.source_words), found.target_words) == ([0, 1, 2], [0, 1, 2, 3, None, 5, 6, None, 8, 9])
    assert [target for _, target in align(model(), [found])[0]] == [0, 1, 2, 3, 5, 6, 8, 9]


def test_links_are_those_of_the_map_itself() -> None:
    made = model()
    pair = tokenize_pair("ab c", "d ee", BOTH)
    with torch.no_grad(), watch(made) as seen:
        given = torch.tensor([[BOS, *pair.target]])
        made.decode(made.encode(torch.tensor([pair.source]), torch.tensor([4])), given)
    weights = seen["decoder.layers.0.cross_attention"].dense()[0, 1]  # (5, 4)
    for about, behind in (("produced", 0), ("read", 1)):
        rows = weights[behind:], weights[behind + 2 :][:2].mean(0)
        expected = [(int(row[3] > row[0] + row[1]), word) for word, row in enumerate((rows[0][0], rows[1]))]
        assert align(made, [pair], AttentionSelector(0, 1, about)) == [expected]
    both = align(made, [pair], threshold=0.0)
    assert both == [[(0, 0), (1, 0), (0, 1), (1, 1)]]


def test_an_empty_side_has_no_links() -> None:
    pairs = [tokenize_pair(*texts, BOTH) for texts in (("", "a"), ("a", ""), (" ", "a"), ("a", "b"))]
    assert align(model(), pairs) == [[], [], [], [(0, 0)]]

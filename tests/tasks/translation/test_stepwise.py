from __future__ import annotations

import numpy as np
import pytest
import torch

from attent.errors import ArgumentError
from attent.models.rnn import RNN
from attent.models.settings import RnnSettings, TransformerSettings
from attent.models.transformer import Transformer
from attent.search.settings import SearchSettings
from attent.tasks.translation.stepwise import StepwiseDecoding, labels
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import EOS, UNK, CharTokenizer

SOURCE, TARGET = CharTokenizer("abcde"), CharTokenizer("0123456")

SMALL = TransformerSettings(
    encoder_layers=1, decoder_layers=2, width=16, feed_forward=17, heads=2, share_embeddings="none"
)


@pytest.fixture(params=["transformer", "rnn"])
def translator(request: pytest.FixtureRequest) -> Translator:
    torch.manual_seed(2)
    if request.param == "rnn":
        settings = RnnSettings(encoder_layers=1, decoder_layers=1, width=12, embedding_width=8)
        return Translator(RNN(settings, SOURCE.size, TARGET.size), SOURCE, TARGET)
    return Translator(Transformer(SMALL, SOURCE.size, TARGET.size), SOURCE, TARGET)


@pytest.mark.parametrize("text", ["abc", "edcba" * 4])
def test_it_writes_what_the_search_writes(translator: Translator, text: str) -> None:
    growing = StepwiseDecoding(translator, text)
    result = [*growing]
    best = translator.search([text])[0][0]
    assert tuple(growing.tokens) == best.tokens
    total = sum(torch.tensor([grown.chosen.probability for grown in result]).double().log()).item()
    assert result[-1].chosen.token == EOS
    assert len(result) <= SearchSettings().limits(np.array([len(text)]))[0] + 1
    assert total == pytest.approx(best.log_probability, abs=1e-3)


def test_it_goes_on_from_a_prefix(translator: Translator) -> None:
    prefix = TARGET.encode("65")
    growing = StepwiseDecoding(translator, "abc", prefix)
    result = [*growing]
    assert growing.tokens[:2] == prefix
    assert [grown.is_forced for grown in result] == [True, True, *[False] * (len(result) - 2)]
    assert TARGET.decode(growing.tokens) == translator.translate(["abc"], prefixes=["65"])[0]
    # of what a search has found only what was asked for is forced
    result = [*StepwiseDecoding(translator, "abc", TARGET.encode("6543"), forced_length=1)]
    assert [grown.is_forced for grown in result] == [True, False, False, False, False]
    assert result[-1].chosen.token == EOS
    assert StepwiseDecoding(translator, "aübüß").unknown_pieces == ["ü", "ß"]
    assert labels(TARGET, [UNK, 4, EOS]) == ("<unk>", "0", "</s>")


def test_candidates_are_the_likeliest_first(translator: Translator) -> None:
    grown = next(iter(StepwiseDecoding(translator, "abc", top_k=4)))
    shares = [candidate.probability for candidate in grown.candidates]
    assert shares == sorted(shares, reverse=True)
    assert (len(shares), grown.candidates[0]) == (4, grown.chosen)
    full = next(iter(StepwiseDecoding(translator, "abc", top_k=100))).candidates
    assert {candidate.piece for candidate in full} == {*"0123456", "</s>", "<unk>"}
    assert 0.5 < sum(candidate.probability for candidate in full) < 1


def test_maps_have_a_row_for_each_token_written(translator: Translator) -> None:
    growing = StepwiseDecoding(translator, "abcd", TARGET.encode("12"))
    for _ in zip(range(3), growing, strict=False):
        pass
    cross = growing.map(with_eos=False)
    name = next(name for name in cross if name.endswith("cross_attention"))
    assert cross[name].rows == labels(TARGET, growing.tokens)
    assert cross[name].weights.shape[2:] == (len(growing.tokens), 4)
    whole = growing.map()
    assert whole[name].rows == (*labels(TARGET, growing.tokens), "</s>")
    torch.testing.assert_close(whole[name].weights.dense()[:, :, :-1], cross[name].weights.dense())
    named = translator.map("abcd", TARGET.decode(growing.tokens))
    torch.testing.assert_close(named[name].weights.dense(), whole[name].weights.dense())


def test_wrong_texts_and_prefixes_are_refused(translator: Translator) -> None:
    with pytest.raises(ArgumentError, match="the text is empty"):
        StepwiseDecoding(translator, "")
    for prefix, message in (([99], "ids of words from 1 to 10, got 99"), ([5, EOS], "got 3"), ([-1], "got -1")):
        with pytest.raises(ArgumentError, match=message):
            StepwiseDecoding(translator, "ab", prefix)
    small = SMALL.model_copy(update={"position": "learned", "maximum_length": 16})
    limited = Translator(Transformer(small, SOURCE.size, TARGET.size), SOURCE, TARGET)
    assert len([*StepwiseDecoding(limited, "ab", [5] * 15)]) == 16
    with pytest.raises(ArgumentError, match="the prefix has 16 tokens, more than the 15 that this model can write"):
        StepwiseDecoding(limited, "ab", [5] * 16)

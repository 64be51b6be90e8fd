import pytest
import torch

from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.search.score import score_pairs
from attent.text.batches import BatchSize
from attent.text.text import Pair
from attent.text.tokenizer import BOS, EOS, CharTokenizer

SOURCE, TARGET = CharTokenizer("abcde"), CharTokenizer("0123456")
PAIRS = [Pair("abc", "01"), Pair("edcba" * 4, "6543210" * 3), Pair("a", ""), Pair("b", "0123"), Pair("dd", "x1")]


def make_model() -> Transformer:
    sizes = {"encoder_layers": 1, "decoder_layers": 2, "width": 16, "feed_forward": 17, "heads": 2}
    settings = TransformerSettings.model_validate(sizes | {"share_embeddings": "none"})
    return Transformer(settings, SOURCE.size, TARGET.size).eval()


def test_it_is_the_sum_over_tokens_and_stop() -> None:
    model = make_model()
    for pair, score_pair in zip(PAIRS, score_pairs(model, PAIRS, SOURCE, TARGET), strict=True):
        target = TARGET.encode(pair.target)
        with torch.no_grad():
            memory = model.encode(torch.tensor([SOURCE.encode(pair.source)]), torch.tensor([len(pair.source)]))
            log_probabilities = model.output(model.decode(memory, torch.tensor([[BOS, *target]])))[0].log_softmax(-1)
        assert score_pair.tokens == len(target) + 1
        assert score_pair.per_token == score_pair.log_probability / score_pair.tokens
        assert score_pair.log_probability == pytest.approx(
            sum(log_probabilities[index, token].item() for index, token in enumerate([*target, EOS])), abs=1e-4
        )


@pytest.mark.parametrize("size", [BatchSize(pairs=1), BatchSize(pairs=2), BatchSize(tokens=24)])
def test_the_batch_does_not_matter(size: BatchSize) -> None:
    model = make_model()
    assert score_pairs(model, PAIRS, SOURCE, TARGET, size) == score_pairs(model, PAIRS, SOURCE, TARGET)
    assert score_pairs(model, PAIRS[::-1], SOURCE, TARGET, size)[::-1] == score_pairs(model, PAIRS, SOURCE, TARGET)

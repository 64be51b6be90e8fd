import torch

from attent.config.settings import parse
from attent.config.tasks.translation import Translation, judge
from attent.data.batches import BatchSize
from attent.data.dates import dates
from attent.decoding.translator import Translator
from attent.models.settings import build

SETTINGS = parse(
    """
    [dates]
    locales = ["en"]
    training_pairs = 11
    validation_pairs = 5
    held_out_pairs = 3
    held_out_combinations = 1
    [model]
    encoder_layers = 1
    decoder_layers = 1
    width = 8
    feed_forward = 7
    heads = 2
    [training]
    updates = 1
    batch_pairs = 4
    """,
    "some.toml",
)


def test_dates_are_read_learnt_encoded_and_judged() -> None:
    task = Translation()
    corpus = task.corpus(SETTINGS)
    learnt = task.learn(corpus)
    assert (learnt.kinds, learnt.sizes, [*learnt.files]) == ({"source": "char", "target": "char"}, None, [])
    model = build(SETTINGS.model, *(tokenizer.size for tokenizer in learnt.tokenizers))
    judged, said = task.judged(model, corpus, learnt, SETTINGS), []
    scores = judged.validate(said.append)
    assert list(scores) == ["loss", "exact match"]
    assert len(said) == 3
    assert list(judged.results(scores)) == ["held-out dates", "held-out combinations"]
    encoded = task.encoded(corpus, learnt)
    loss, width = task.loss(model.train(), next(encoded.endless(BatchSize(4), 1)), 0.1, "float32")
    assert (loss.shape, width) == (torch.Size([]), 8)
    borrowed = task.borrowed(SETTINGS, corpus.lend(encoded), learnt)
    assert len(borrowed) == len(encoded) == 11


def test_a_set_without_pairs_is_not_judged() -> None:
    corpus = dates(SETTINGS.dates)
    tokenizers = Translation().learn(Translation().corpus(SETTINGS)).tokenizers
    translator = Translator(build(SETTINGS.model, *(tokenizer.size for tokenizer in tokenizers)), *tokenizers)
    assert judge(translator, {"none": []}) == {}
    assert set(judge(translator, {"some": corpus.validation})["some"]) == {"pairs", "exact_match", "year_alignment", "AER"}

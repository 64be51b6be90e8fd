"""Links between the words of a text and its translation are those that aligning the pair finds."""

import torch

from attent.alignment.aligner import align, tokenize_pair
from attent.alignment.forced_decoding import AttentionSelector
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.tasks.translation.alignment import Alignment
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import CharTokenizer


def test_links_are_those_of_the_pair() -> None:
    torch.manual_seed(2)
    source, target = CharTokenizer("abcde "), CharTokenizer("0123 ")
    small = {
        "encoder_layers": 1,
        "decoder_layers": 2,
        "width": 16,
        "feed_forward": 17,
        "heads": 2,
        "share_embeddings": "none",
    }
    translator = Translator(
        Transformer(TransformerSettings.model_validate(small), source.size, target.size), source, target
    )
    texts = ["ab cd e", "e", "abc de"]
    translations = [best[0] for best in translator.search(texts)]
    for selector in (None, AttentionSelector(0, 1, "read")):
        pairs = [
            tokenize_pair(text, item.text, (source, target)) for text, item in zip(texts, translations, strict=True)
        ]
        links = [item.links for item in Alignment.of(translator, translations, selector=selector)]
        assert links == align(translator.model, pairs, selector)

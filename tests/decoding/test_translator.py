from pathlib import Path

import pytest
import torch

from attent.data.tokenizer import CharTokenizer
from attent.decoding.translator import Translator, load, longest_translation
from attent.errors import ArgumentError, RunError
from attent.models.transformer import Transformer
from attent.models.transformer_settings import TransformerSettings
from attent.runs.folder import RunConfig, RunWriter

SETTINGS = TransformerSettings(encoder_layers=1, decoder_layers=2, width=16, feed_forward=17, heads=2, share_embeddings="none")
SOURCE, TARGET = CharTokenizer("abcde"), CharTokenizer("0123456")
TEXTS = ["abc", "", "edcba" * 4, "a", "ü", "bad", "", "cab"]


def translator() -> Translator:
    torch.manual_seed(2)
    return Translator(Transformer(SETTINGS, SOURCE.size, TARGET.size), SOURCE, TARGET)


def test_the_order_is_kept_whatever_the_batch() -> None:
    made = translator()
    together = made.translate(TEXTS)
    assert together == made.translate(TEXTS, batch=3)
    assert together == [made.translate([text])[0] for text in TEXTS]
    assert [made.translate(TEXTS[::-1])[place] for place in range(8)] == together[::-1]


def test_an_empty_text_has_an_empty_translation() -> None:
    made = translator()
    assert made.translate([]) == []
    assert made.translate(["", ""]) == ["", ""]
    assert made.translate(TEXTS)[1] == ""


def test_a_translation_ends_by_the_length_of_its_own_source() -> None:
    assert longest_translation(torch.tensor([1, 5])).tolist() == [34, 42]
    lengths = [len(text) for text in translator().translate(TEXTS)]
    assert all(length <= 2 * len(text) + 32 for length, text in zip(lengths, TEXTS, strict=True))


def test_maps_are_labelled_by_what_their_rows_emit() -> None:
    maps = translator().map("bad", "10")
    read, said, heard = ("b", "a", "d"), ("1", "0", "</s>"), ("<s>", "1", "0")
    assert {name: (labelled.rows, labelled.columns) for name, labelled in maps.items()} == {
        "encoder.layers.0.self_attention": (read, read),
        "decoder.layers.0.self_attention": (said, heard),
        "decoder.layers.0.cross_attention": (said, read),
        "decoder.layers.1.self_attention": (said, heard),
        "decoder.layers.1.cross_attention": (said, read),
    }
    for labelled in maps.values():
        assert labelled.weights.shape == (1, 2, len(labelled.rows), len(labelled.columns))
        torch.testing.assert_close(labelled.weights.dense().sum(-1), torch.ones(1, 2, len(labelled.rows)))


def test_a_map_is_of_the_models_own_translation_unless_one_is_given() -> None:
    made = translator()
    own = made.map("bad")["decoder.layers.1.cross_attention"]
    assert "".join(own.rows[:-1]) == made.translate(["bad"])[0]


def test_nothing_has_no_map() -> None:
    with pytest.raises(ArgumentError, match="empty source"):
        translator().map("")


def test_a_run_folder_translates_as_the_model_did(tmp_path: Path) -> None:
    made = translator()
    with RunWriter(tmp_path / "run") as run:
        run.finish(RunConfig(model=SETTINGS), made.model, SOURCE, TARGET)
    assert load(tmp_path / "run").translate(TEXTS) == made.translate(TEXTS)


def test_no_run_folder_is_a_run_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is no run folder"):
        load(tmp_path / "run")

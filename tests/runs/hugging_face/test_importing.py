"""Imported models against transformers: the same logits, and the same translations by its own search.

Its beam search stops early unless early_stopping is "never", which ours is; at the longest length it takes what has not
ended, where ours ends it: by beam search, translations that reach that length are left out.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import random_translators
import torch

import attent
from attent.runs.config import read_config
from attent.runs.hugging_face import FAMILIES, import_run, is_translator, read
from attent.runs.hugging_face.folder import SourceFolder
from attent.runs.hugging_face.layout import SpecialIds, Vocabulary
from attent.search.settings import SearchSettings
from attent.tasks.translation.translator import Translator, of_run
from attent.text.tokenizer import EOS, prompt_of

pytest.importorskip("transformers", reason="transformers is not installed")
# Pairwise: every setting that changes which tensors there are, and every activation.
MARIAN = {
    "shared": {},
    "untied": {"eos": 17, "seed": 2, "tie_word_embeddings": False},
    "apart": {"separate": True, "eos": 5},
    "apart-untied": {"separate": True, "tie_word_embeddings": False, "activation_function": "gelu"},
    "learned": {
        "learned": True,
        "scale_embedding": False,
        "activation_function": "relu",
        "encoder_layers": 1,
        "decoder_layers": 3,
    },
}
M2M100 = {"m2m100": {}, "nllb-untied": {"nllb": True, "tie_word_embeddings": False, "activation_function": "swish"}}
# Source, target, and the mark of the target.
LANGUAGES = {"m2m100": ("en", "fr", "__fr__"), "nllb-untied": ("eng_Latn", "deu_Latn", "deu_Latn")}
SOURCES = random_translators.sources(24)
LIMIT = 30
# Below this difference of two scores, in nats a token, either may be the best.
MARGIN = 1e-3


@dataclass
class Both:
    """A model of transformers, ours, and their ids by ours for source and target."""

    theirs: Any
    tokenizer: Any
    ours: Translator
    source_ids: list[int]
    target_ids: list[int]
    forced: int | None

    def read(self, text: str) -> list[int]:
        return self.tokenizer(text)["input_ids"]


@pytest.fixture(scope="module", params=[*MARIAN, *M2M100])
def model_pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    from transformers import AutoTokenizer

    name = request.param
    folder = tmp_path_factory.mktemp(name) / "model"
    write: Any = random_translators.marian if name in MARIAN else random_translators.m2m100
    reference = write(folder, **(MARIAN | M2M100)[name])
    *languages, mark = LANGUAGES.get(name, (None, None, None))
    run = read(folder, *languages)
    source = FAMILIES[reference.config.model_type](SourceFolder(folder), *languages)
    ids = [
        [side.special.pad, side.special.unk, side.special.start, side.special.eos, *side.ordinary]
        for side in source.vocabularies
    ]
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    forced = tokenizer.convert_tokens_to_ids(mark) if mark else None
    return Both(reference, tokenizer, of_run(run), *ids, forced)


def test_the_same_text_has_the_same_tokens(model_pair: Both) -> None:
    for text in random_translators.texts(60):
        if encoded := model_pair.ours.source_tokenizer.encode(text):
            assert [model_pair.source_ids[token] for token in encoded] == model_pair.read(text), text


@torch.inference_mode()
def test_logits_are_the_same(model_pair: Both) -> None:
    """After each token of a target that has our ids, for the ids that both have."""
    model, ids = model_pair.ours.model, model_pair.target_ids
    vocabulary = [token for token, bias in enumerate(model.to_logits.bias.tolist()) if bias > -99]
    for row, text in enumerate(SOURCES[:8]):
        source, target = model_pair.ours.source_tokenizer.encode(text), torch.randint(4, len(ids), (3 + row,)).tolist()
        memory = model.encode(torch.tensor([source]), torch.tensor([len(source)]))
        actual = model.output(model.decode(memory, torch.tensor([[2, *target]])))[0]
        read = torch.tensor([[model_pair.source_ids[token] for token in source]])
        written = torch.tensor([[ids[token] for token in (2, *target)]])
        reference = model_pair.theirs(input_ids=read, decoder_input_ids=written).logits[0]
        expected = reference[:, [ids[token] for token in vocabulary]]
        torch.testing.assert_close(actual[:, vocabulary], expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("beam", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_translations_are_the_same(model_pair: Both, beam: int) -> None:
    """By beam search, those of the sources where both end within the limit."""
    pair, sources, compared = model_pair, SOURCES if beam > 1 else SOURCES[:8], 0
    settings = SearchSettings(beam=beam, length_penalty=1, length_form="length", maximum_length=LIMIT)
    eos = pair.theirs.generation_config.eos_token_id
    options: dict[str, Any] = {"num_beams": beam, "max_length": LIMIT + 2, "forced_bos_token_id": pair.forced}
    options |= {"return_dict_in_generate": True, "output_scores": True}
    options |= {"early_stopping": "never", "length_penalty": 1.0} if beam > 1 else {}
    for text, (best, *_) in zip(sources, pair.ours.search(sources, settings), strict=True):
        result = pair.theirs.generate(torch.tensor([pair.read(text)]), **options)
        written = result.sequences[0].tolist()[1:]
        written = written[: written.index(eos) if eos in written else LIMIT][:LIMIT]
        if beam > 1 and max(len(written), len(best.tokens)) >= LIMIT:
            continue
        compared += 1
        score = float(result.sequences_scores[0]) if beam > 1 else best.score
        if written == [pair.target_ids[token] for token in best.tokens]:
            assert best.score == pytest.approx(score, abs=1e-4)
        else:
            assert beam > 1 and abs(best.score - score) <= MARGIN, text
    assert compared


def test_decoding_is_theirs_but_for_spaces_around(model_pair: Both) -> None:
    size = len(model_pair.target_ids)
    special = set(model_pair.ours.target_tokenizer.marks) | set(range(4))  # pyright: ignore[reportAttributeAccessIssue]
    for _ in range(50):
        tokens = [token for token in torch.randint(4, size, (9,)).tolist() if token not in special]
        reference = model_pair.tokenizer.decode(
            [model_pair.target_ids[token] for token in tokens], skip_special_tokens=True
        )
        assert model_pair.ours.target_tokenizer.decode(tokens) == reference.strip()


def test_a_run_is_written_that_suffices(tmp_path: Path) -> None:
    random_translators.marian(tmp_path / "model", separate=True)
    (tmp_path / "model" / "README.md").write_text("---\nlanguage: en\nlicense: cc-by-4.0\n---\n# A model\n", "utf-8")
    (tmp_path / "model" / "LICENSE").write_text("Attribution 4.0 International\n", "utf-8")
    assert is_translator(tmp_path / "model")
    config = import_run(tmp_path / "model", tmp_path / "run", "en", "fr")
    for file in (tmp_path / "model").iterdir():
        file.unlink()
    translator = attent.load(tmp_path / "run")
    assert read_config(tmp_path / "run").origin == config.origin
    assert config.origin["licence"] == "cc-by-4.0"
    assert config.origin["search"]["num_beams"] == 4
    assert (config.source_language, config.target_language) == ("en", "fr")
    assert (tmp_path / "run" / "LICENSE").read_text("utf-8") == "Attribution 4.0 International\n"
    assert "licence: cc-by-4.0" in repr(translator)
    assert translator.translate("The dog runs.") == translator.translate(["The dog runs."])[0]
    assert not is_translator(tmp_path / "run")


def test_a_folder_is_loaded_as_it_is(tmp_path: Path) -> None:
    random_translators.m2m100(tmp_path / "model", nllb=True)
    import_run(tmp_path / "model", tmp_path / "run", "eng_Latn", "deu_Latn")
    folder = attent.load(tmp_path / "model", source_language="eng_Latn", target_language="deu_Latn")
    assert folder.translate(SOURCES) == attent.load(tmp_path / "run").translate(SOURCES)
    (score,) = folder.score([("The dog runs.", "Ein Hund")])
    assert score.tokens == len(folder.target_tokenizer.encode("Ein Hund"))  # EOS for the language's token


def test_the_token_of_the_language_counts_in_bounds_of_length(tmp_path: Path) -> None:
    random_translators.m2m100(tmp_path / "model")
    translator = attent.load(tmp_path / "model", source_language="en", target_language="fr")
    with torch.no_grad():
        # it would always end
        translator.model.to_logits.bias[EOS] = 1e4
    for bounds, length in (({}, 1), ({"minimum_length": 1}, 1), ({"minimum_length": 3, "maximum_length": 3}, 3)):
        (best,) = translator.search(["The dog runs."], SearchSettings(**bounds))[0]
        assert len(best.tokens) == length
        assert best.tokens[:1] == tuple(prompt_of(translator.target_tokenizer))


def test_rows_are_those_of_our_ids() -> None:
    table = torch.arange(5.0)[:, None].expand(5, 2)
    marian = Vocabulary({0: "</s>", 1: "<unk>", 2: "a", 4: "<pad>"}, 5, SpecialIds(4, 1, 4, 0))
    nllb = Vocabulary({0: "<s>", 1: "<pad>", 2: "</s>", 3: "<unk>", 4: "a"}, 5, SpecialIds(1, 3, 2, 2))
    assert (marian.pieces, nllb.pieces) == (["a", "<unused 3>"], ["<s>", "a"])
    for vocabulary, rows, bias in (
        (marian, [0, 1, 4, 0, 2, 3], [-100, 1, 4, 0, 2, 3]),
        (nllb, [1, 3, 2, 2, 0, 4], [1, 3, -100, 2, 0, 4]),
    ):
        assert (vocabulary.rows(table)[:, 0].tolist(), vocabulary.bias(table[:, 0]).tolist()) == (rows, bias)

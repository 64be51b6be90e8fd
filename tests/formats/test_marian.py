"""Checkpoints that transformers runs.

The same logits and translations as ours, and the same model once imported again.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import random_translators
import torch

from attent.errors import ArgumentError
from attent.formats.marian import write
from attent.runs import hugging_face
from attent.runs.folder import Run, read
from attent.search.settings import SearchSettings
from attent.tasks.translation.translator import of_run
from attent.text.tokenizer import BOS
from attent.text.tokenizers import BpeTokenizer, UnigramTokenizer

pytest.importorskip("transformers", reason="transformers is not installed")
LINES = random_translators.lines()[:600]
SOURCES = random_translators.sources(12)
SETTINGS: dict[str, dict[str, Any]] = {
    "paper": {},
    "shared": {"share_embeddings": "all", "activation": "silu", "output_bias": True},
    "apart": {"share_embeddings": "none", "position": "learned", "activation": "gelu", "scale_embeddings": False},
}


@pytest.fixture(scope="module")
def tokenizers() -> tuple[BpeTokenizer, UnigramTokenizer]:
    return BpeTokenizer.learn(LINES, 500), UnigramTokenizer.learn(LINES, 480)


@pytest.fixture(params=SETTINGS)
def run(request: pytest.FixtureRequest, make_run: Any, tokenizers: Any) -> Run:
    pair = tokenizers if request.param != "shared" else (tokenizers[0], tokenizers[0])
    return read(make_run(tokenizers=pair, **SETTINGS[request.param]))


@pytest.mark.slow
def test_transformers_computes_the_same(run: Run, tmp_path: Path) -> None:
    from transformers import MarianMTModel, MarianTokenizer

    (tmp_path / "model").mkdir()
    write(run, "RUN", tmp_path / "model", None)
    reference: Any = MarianMTModel.from_pretrained(tmp_path / "model").eval()
    tokenizer: Any = MarianTokenizer.from_pretrained(tmp_path / "model")
    engine, size = of_run(run), run.target_tokenizer.size
    # our ids of theirs: EOS, UNK, PAD, the pieces, BOS
    ids = [3, 1, 0, *range(4, size), BOS]
    hypotheses = engine.search(SOURCES, SearchSettings(maximum_length=20))
    names = {
        token: piece for piece, token in json.loads((tmp_path / "model" / "vocab.json").read_text("utf-8")).items()
    }
    for text, best in zip(SOURCES, hypotheses, strict=True):
        read_ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        source = run.source_tokenizer.encode(text)
        assert [names[token] for token in read_ids[0].tolist()] == run.source_tokenizer.pieces(text)
        target = torch.randint(4, size, (6,)).tolist()
        with torch.inference_mode():
            memory = engine.encode(source)
            logits = engine.model.output(engine.model.decode(memory, torch.tensor([[BOS, *target]])))[0]
            written = torch.tensor([[size - 1, *(token - 1 for token in target)]])
            expected = reference(input_ids=read_ids, decoder_input_ids=written).logits[0]
        torch.testing.assert_close(logits[:, ids], expected, atol=1e-4, rtol=0)
        result = reference.generate(input_ids=read_ids, max_length=22)[0].tolist()[1:]
        result = result[: result.index(0)] if 0 in result else result
        assert [ids[token] for token in result][:20] == [*best[0].tokens]


def test_an_imported_model_comes_back_as_it_was(tmp_path: Path) -> None:
    random_translators.marian(tmp_path / "model", separate=True, eos=5)
    run = hugging_face.read(tmp_path / "model")
    (tmp_path / "again").mkdir()
    write(run, "RUN", tmp_path / "again", None)
    settings = SearchSettings(beam=4, maximum_length=20)
    texts = [
        [best[0].text for best in of_run(item).search(SOURCES, settings)]
        for item in (run, hugging_face.read(tmp_path / "again"))
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"norm": "pre"}, "follows each residual connection"),
        ({"position": "rotary"}, "no position 'rotary'"),
        ({"normalizer": "sparsemax"}, "only scaled_dot and softmax"),
        ({"key_value_heads": 2}, "same number of heads"),
        ({"kind": "rnn"}, "it does not support recurrent models"),
        ({}, "its tokenizer is SentencePiece, and the source's is 'char'"),
    ],
)
def test_what_marian_cannot_express(make_run: Any, tmp_path: Path, settings: dict[str, Any], says: str) -> None:
    run = read(make_run(**settings))
    with pytest.raises(ArgumentError, match=says):
        write(run, "RUN", tmp_path, None)
    assert not [*tmp_path.iterdir()]

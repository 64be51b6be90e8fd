import pytest
import torch

from attent.errors import UnknownNameError
from attent.formats.embeddings import embedding_vectors
from attent.models.build import build
from attent.models.settings import RnnSettings
from attent.runs.config import RunConfig
from attent.runs.folder import Run
from attent.text.tokenizer import WordTokenizer
from attent.text.tokenizers import BpeTokenizer

WORDS = WordTokenizer([" the", "(", "\t", " (", " a b"])


def run_of(source: object, target: object) -> Run:
    settings = RnnSettings(embedding_width=5, width=4)
    return Run(
        RunConfig(model=settings), build(settings, source.size, target.size), {"source": source, "target": target}, {}
    )


def test_each_word_has_the_features_that_a_model_begins_with() -> None:
    run = run_of(WORDS, WordTokenizer([" x"]))
    vectors, left_out = embedding_vectors(run, "source", "glove")
    assert (list(vectors.words), left_out) == (["the", "(", "a b"], 2)
    # of two ids that are one word, the first
    torch.testing.assert_close(vectors.vectors, run.model.embeddings["source"](torch.tensor([[4, 5, 8]]))[0].detach())
    assert [*embedding_vectors(run, "source", "binary")[0].words] == ["the", "("]
    with pytest.raises(UnknownNameError, match="unknown side 'text'"):
        embedding_vectors(run, "text", "glove")


def test_pieces_are_written_as_they_are() -> None:
    tokenizer = BpeTokenizer.learn(["low lower lowest"] * 9, 280)
    vectors, left_out = embedding_vectors(run_of(tokenizer, WORDS), "source", "word2vec")
    pieces = [piece for piece in map(tokenizer.piece, range(tokenizer.size)) if piece]
    assert (list(vectors.words), left_out) == (pieces, 256)
    assert "▁low" in vectors

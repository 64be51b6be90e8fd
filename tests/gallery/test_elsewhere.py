from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gallery.elsewhere import CAPTIONS, captions, elsewhere, of_similar_length
from gallery.encoder import Reading

from attent.errors import DataError


def test_words_at_an_offset_are_averaged_without_the_marks_at_the_ends(reading: Callable[..., Reading]) -> None:
    weights = torch.arange(25.0).view(1, 1, 5, 5)
    average = elsewhere([reading(weights), reading(weights + 1)], 1)
    # rows and columns 1 to 3: (1, 2) is 7, (2, 3) is 13
    assert average.pairs == 4
    assert average.mean.item() == (7 + 13 + 8 + 14) / 4
    assert average.high.item() == pytest.approx(13.85)
    assert elsewhere([reading(weights)], -2).mean.item() == 16


def test_a_head_that_looks_back_gives_it_everywhere(habits: Reading) -> None:
    assert elsewhere([habits], -1).mean.tolist() == [[1.0, 0.0, pytest.approx(0.2)]]


def test_an_offset_that_no_sentence_has_is_refused(habits: Reading) -> None:
    with pytest.raises(DataError, match="no sentence has two words 3 pieces apart"):
        elsewhere([habits], 3)


def test_sentences_of_the_nearest_lengths_are_read_in_their_order() -> None:
    class Counting:
        def lengths(self, sentences: list[str]) -> list[int]:
            return [len(sentence) for sentence in sentences]

        def read(self, sentences: list[str]) -> list[str]:
            return sentences

    assert of_similar_length(Counting(), ["five5", "a", "three", "four", "sixsix"], 5, 3) == ["five5", "three", "four"]


def test_captions_are_read_or_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train\.en\.gz is missing: download it with `attent data multi30k --out "):
        captions(tmp_path)
    (tmp_path / CAPTIONS).parent.mkdir()
    with gzip.open(tmp_path / CAPTIONS, "wt", encoding="utf-8") as file:
        file.write("A dog runs.\n\n Two men talk. \n")
    assert captions(tmp_path) == ["A dog runs.", "Two men talk."]

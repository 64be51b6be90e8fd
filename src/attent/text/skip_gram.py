"""Training of word vectors on a text, by gensim's skip-gram."""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from attent.errors import DataError, needs, refuse
from attent.text.readers import STANDARD_INPUT, read_lines
from attent.text.settings import SkipGramSettings
from attent.text.tokenizer import split_words
from attent.text.word_vectors import WordVectors

# gensim ignores the words of a sentence beyond this number.
MAX_SENTENCE = 10_000
# Seconds between reports of progress.
REPORT_EVERY = 10
DEFAULT = SkipGramSettings.model_validate({})


class _Sentences:
    """The words and signs of each line, in lower case; the file is read anew for each pass.

    Args:
        path: the file.
        passes: the number of passes, for the report.
        say: shows a message to the user.
    """

    def __init__(self, path: Path | str, passes: int, say: Callable[[str], None]) -> None:
        self.path, self.passes, self.say, self.number = path, passes, say, 0

    def __iter__(self) -> Iterator[list[str]]:
        self.number, count, reported = self.number + 1, 0, time.monotonic()
        for count, line in enumerate(read_lines(self.path), start=1):
            words = [word for piece in split_words(line.lower()) if (word := piece.strip())]
            yield from (words[begin : begin + MAX_SENTENCE] for begin in range(0, len(words), MAX_SENTENCE))
            if time.monotonic() - reported > REPORT_EVERY:
                self.say(f"pass {self.number} of {self.passes}: {count:,} lines read")
                reported = time.monotonic()
        self.say(f"pass {self.number} of {self.passes}: {count:,} lines")


def train_vectors(
    path: Path | str,
    settings: SkipGramSettings = DEFAULT,
    say: Callable[[str], None] = lambda _: None,
) -> WordVectors:
    """Train word vectors on the lines of a text, in lower case: skip-gram with five negative samples per pair.

        maximize Σ log σ(u_c · v_w) + Σ_{n ~ noise} log σ(−u_n · v_w)

    over the words w and the words c within the window around them; v_w are the results. Equal settings give equal
    vectors on one machine. The text is read once to count words and then once per epoch; memory holds only the
    vocabulary.

    Source: Mikolov et al. (2013), §2.2, eq. 4, arXiv 1310.4546.

    Args:
        path: the text, gzipped if its name ends in .gz.
        settings: the settings.
        say: shows a message to the user.

    Raises:
        ArgumentError: the text is standard input, which cannot be read twice.
        DataError: the text cannot be read, or fewer than two of its words occur often enough.
        MissingExtraError: gensim is not installed.
    """
    refuse((str(path) == STANDARD_INPUT, "word vectors need several passes over the text: give a file, not -"))
    with needs("training word vectors needs gensim", "vectors"):
        from gensim.models import Word2Vec
    # otherwise Python prints gensim's warnings about small texts
    logging.getLogger("gensim").addHandler(logging.NullHandler())
    sentences, count = _Sentences(path, settings.epochs + 1, say), settings.minimum_count
    # one thread, since the order of updates changes the result
    model = Word2Vec(
        vector_size=settings.width, window=settings.window, min_count=count, seed=settings.seed, sg=1, workers=1
    )
    model.build_vocab(sentences)
    if len(model.wv) < 2:
        raise DataError(
            f"{path}: word vectors need two words that occur at least {count} times, got {len(model.wv)}: set a lower "
            "minimum count or add text"
        )
    model.train(sentences, total_examples=model.corpus_count, epochs=settings.epochs)
    return WordVectors([*map(str, model.wv.index_to_key)], torch.from_numpy(model.wv.vectors))

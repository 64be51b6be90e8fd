"""Heads ranked by how much one word of a text attends to another, in one text or on average over many."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attent.alignment.ablation import LISTED, columns, resampled_sums
from attent.alignment.aligner import SPACE, piece_starts
from attent.attention.maps.statistics import Span
from attent.errors import ArgumentError, DataError, brief, refuse
from attent.text.readers import read_lines
from attent.views.scene import LayerWeights, Scene

# The texts of a scene that are the given text.
READ_TEXTS = ("tokens", "source")
# A word, and its number among the equal words of the text, from 1.
NUMBERED = re.compile(r"(.+?)(?:#([1-9][0-9]{0,5}))?")
# WordPiece's mark of a piece that continues a word.
CONTINUES = "##"


class WordPair(NamedTuple):
    """Two words of a text, as `word` or, if there are several equal words, `word#2`."""

    text: str
    first: str
    second: str


@dataclass(frozen=True)
class HeadAttention:
    """The attention of one head from one word to another.

    Args:
        layer: the path of the layer's module.
        head: from 0.
        weight: the weight from word to word, the mean over texts; keys of a word are summed, queries averaged.
        baseline: the head's mean weight over the other pairs of the same text whose key is as many words before or
            after the query, the mean over texts; None if there are none.
        share_above: the share of the text's other pairs of two words that get more from the head, the mean over texts.
        interval: the 95 % interval of the weight over bootstrap resamples of the texts; None for one text.
    """

    layer: str
    head: int
    weight: float
    baseline: float | None
    share_above: float
    interval: tuple[float, float] | None


def parse_pair(text: str, words: str) -> WordPair:
    """Return the pair of `first:second`.

    Raises:
        ArgumentError: it is not of this form.
    """
    first, _, second = words.partition(":")
    refuse((not first or not second or ":" in second, f"two words must be written as in ate:pizza, got {words!r}"))
    return WordPair(text, first, second)


def read_word_pairs(file: Path | str) -> list[WordPair]:
    """Return the pairs in a file with lines of `text<TAB>first:second`; empty lines are skipped.

    Raises:
        DataError: the file cannot be read, has no pair, or a line is not of this form.
    """
    pairs: list[WordPair] = []
    for number, line in enumerate(read_lines(file), start=1):
        text, tab, words = line.rstrip().rpartition("\t")
        try:
            pairs += [parse_pair(text, words)] if tab else []
        except ArgumentError as error:
            raise DataError(f"{file}, line {number}: {error}") from error
        if not tab and line.strip():
            raise DataError(f"{file}, line {number} must be a text, a tab and two words as in ate:pizza")
    refuse((not pairs, f"{file} has no line of a text, a tab and two words"), kind=DataError)
    return pairs


def text_words(text: str) -> list[tuple[str, Span]]:
    """Return the words of a text, as separated by spaces and without punctuation at their ends, with their characters.

    Example:
        >>> text_words("So, he ate.")
        [('So', (0, 2)), ('he', (4, 6)), ('ate', (7, 10))]
    """
    words: list[tuple[str, Span]] = []
    for match in re.finditer(r"\S+", text):
        is_word = [unicodedata.category(character)[0] not in "PS" for character in match[0]]
        if any(is_word):
            begin, end = match.start() + is_word.index(True), match.end() - is_word[::-1].index(True)
            words.append((text[begin:end], (begin, end)))
    return words


def token_spans(text: str, labels: Sequence[str]) -> list[Span | None]:
    """Return the span in tokens of each word of `text_words`, None for a word whose tokens do not spell it.

    Args:
        text: the text.
        labels: the text of each token. It may lack case, accents and spaces, and there may be tokens such as [CLS].
    """
    plain, pieces = _plain(text), [_plain(label.removeprefix(CONTINUES).replace(SPACE, " ")) for label in labels]
    words, tokens = text_words(plain), dict[int, list[int]]()
    word_at = {index: word for word, (_, (begin, end)) in enumerate(words) for index in range(begin, end)}
    for token, (piece, start) in enumerate(zip(pieces, piece_starts(plain, pieces), strict=True)):
        # a token of two words belongs to the first; one that spells nothing, such as [CLS], begins at other letters
        if start is not None and plain.startswith(piece.strip(), start):
            tokens.setdefault(word_at.get(start, -1), []).append(token)
    return [(tokens[word][0], tokens[word][-1] + 1) if word in tokens else None for word in range(len(words))]


def _plain(text: str) -> str:
    """Return a text without case and accents, with as many words."""
    return "".join(
        letter
        for character in text
        for letter in unicodedata.normalize("NFKD", character.casefold())
        if not unicodedata.combining(letter) and (character.isspace() or not letter.isspace())
    )


def word_index(words: Sequence[str], name: str) -> int:
    """Return the index of a word, `word` or `word#2`.

    Raises:
        ArgumentError: there is no such word, or several and no number.
    """
    match = NUMBERED.fullmatch(name)
    word, number = (name, None) if name in words or match is None else (match[1], match[2])
    indices = [index for index, candidate in enumerate(words) if candidate == word]
    refuse(
        (not indices, f"{word!r} is not a word of the text, whose words are {brief(' '.join(words))}"),
        (
            number is None and len(indices) > 1,
            f"the text has {word!r} {len(indices)} times: choose one as in {word}#{len(indices)}",
        ),
        (
            number is not None and int(number) > len(indices),
            f"the text has {word!r} {len(indices)} times, so there is no {name}",
        ),
    )
    return indices[int(number or 1) - 1]


class _Measured(NamedTuple):
    """The weight, baseline and share of one pair in each head, (heads,) each; an undefined baseline is NaN."""

    weight: np.ndarray
    baseline: np.ndarray
    share_above: np.ndarray


def _measure(weights: np.ndarray, positions: np.ndarray, query: int, key: int) -> _Measured:
    """Measure a pair of words.

    Args:
        weights: (H, n, n), of the words that have tokens.
        positions: the number of each of these words in the text, (n,).
        query: the index of the word that attends.
        key: the index of the word that it attends to.
    """
    # pairs that no head of a layer can see, such as later words in a causal model, are left out
    is_pair = (weights != 0).any(0) & ~np.eye(len(positions), dtype=bool)
    is_pair[query, key] = False
    offsets = positions[None, :] - positions[:, None]
    is_alike = is_pair & (offsets == offsets[query, key])
    weight, others, same_offset = weights[:, query, key], weights[:, is_pair], weights[:, is_alike]
    undefined = np.full(len(weights), np.nan)
    return _Measured(
        weight,
        same_offset.mean(1) if same_offset.shape[1] else undefined,
        (others > weight[:, None]).mean(1) if others.shape[1] else undefined,
    )


def _measure_pair(layers: Sequence[LayerWeights], labels: Sequence[str], pair: WordPair) -> tuple[_Measured, _Measured]:
    """Measure a pair of words in both directions, in all heads of the layers."""
    words, spans = [word for word, _ in text_words(pair.text)], token_spans(pair.text, labels)
    indices = [word_index(words, name) for name in (pair.first, pair.second)]
    positions = [position for position, span in enumerate(spans) if span is not None]
    refuse(
        (indices[0] == indices[1], f"{pair.first}:{pair.second} is one word, but two are needed"),
        *(
            (spans[index] is None, f"no tokens of the model spell {words[index]!r}: its vocabulary may lack the word")
            for index in indices
        ),
    )
    first, second = (positions.index(index) for index in indices)
    grouped = [layer.grouped([span for span in spans if span is not None]).double().numpy() for layer in layers]
    return tuple(  # pyright: ignore[reportReturnType]
        _Measured(
            *map(np.concatenate, zip(*(_measure(matrix, np.array(positions), *way) for matrix in grouped), strict=True))
        )
        for way in ((first, second), (second, first))
    )


def rank_heads(
    scene_of: Callable[[str], Scene], pairs: Sequence[WordPair]
) -> tuple[list[HeadAttention], list[HeadAttention]]:
    """Rank all heads of a model by the weight from the first word to the second, and from the second to the first.

    Only heads in which the words of the text attend to each other are ranked. Words without tokens and tokens without
    words, such as [CLS] and punctuation, are in no baseline. Of many heads, some give any pair a large weight by
    chance: the first in the ranking of one text is an example, not evidence.

    Args:
        scene_of: returns the scene of a text, such as `PretrainedModel.scene`.
        pairs: the pairs with their texts.

    Raises:
        ArgumentError: a text does not have a word, or has it several times, or the model has no such heads.
        DataError: the model cannot read a text.
    """
    refuse((not pairs, "heads cannot be ranked without a pair of words"))
    heads: list[tuple[str, int]] = []
    measured: list[tuple[_Measured, _Measured]] = []
    for number, pair in enumerate(pairs, start=1):
        scene = scene_of(pair.text)
        groups = [group for group in scene.groups if group.rows == group.columns and group.rows in READ_TEXTS]
        refuse((not groups, "in this model, the words of the text do not attend to each other"))
        layers = [layer for group in groups for layer in group.layers]
        heads = [(layer.name, head) for layer in layers for head in range(layer.shape[0])]
        try:
            measured.append(_measure_pair(layers, scene.texts[groups[0].rows].labels, pair))
        except ArgumentError as error:
            raise ArgumentError(f"text {number}: {error}" if len(pairs) > 1 else str(error)) from error
    return tuple(_rank(heads, list(way)) for way in zip(*measured, strict=True))  # pyright: ignore[reportReturnType]


def _rank(heads: Sequence[tuple[str, int]], measured: Sequence[_Measured]) -> list[HeadAttention]:
    weights, baselines, shares = (np.stack(parts) for parts in zip(*measured, strict=True))  # (N, heads) each
    count, is_defined = len(weights), ~np.isnan(baselines)
    lows, highs = np.percentile(resampled_sums(weights) / count, [2.5, 97.5], axis=0)
    baseline = np.where(is_defined, baselines, 0).sum(0) / np.maximum(is_defined.sum(0), 1)
    ranked = [
        HeadAttention(
            layer,
            head,
            float(weights[:, index].mean()),
            float(baseline[index]) if is_defined[:, index].any() else None,
            float(np.nan_to_num(shares[:, index]).mean()),
            (float(lows[index]), float(highs[index])) if count > 1 else None,
        )
        for index, (layer, head) in enumerate(heads)
    ]
    return sorted(ranked, key=lambda attention: -attention.weight)


def ranking_lines(scene_of: Callable[[str], Scene], find: str, text: str | None) -> list[str]:
    """Return the tables of the heads with the largest weights from one word to another, in both directions.

    Args:
        scene_of: returns the scene of a text.
        find: two words of the text, `first:second`, or a file for `read_word_pairs`.
        text: the text; None for a file.

    Raises:
        ArgumentError: as of `rank_heads`; or there is no text, or one beside a file.
        DataError: as of `read_word_pairs` and `rank_heads`.
    """
    is_file = Path(find).is_file()
    refuse(
        (is_file and text is not None, f"{find} is a file with texts of its own: leave out the text"),
        (not is_file and text is None, f"give a text that has the words, or a file: there is no file {find}"),
    )
    pairs = read_word_pairs(find) if is_file else [parse_pair(text or "", find)]
    first, second = ("first word", "second word") if is_file else (pairs[0].first, pairs[0].second)
    lines: list[str] = []
    for title, ranking in zip((f"{first} → {second}", f"{second} → {first}"), rank_heads(scene_of, pairs), strict=True):
        texts = f", {len(pairs):,} texts" if is_file else ""
        rows = [["layer", "head", "weight", *["95 % interval"] * (len(pairs) > 1), "same distance", "others above"]]
        for attention in ranking[:LISTED]:
            interval = (
                [] if attention.interval is None else [f"{attention.interval[0]:.2f} to {attention.interval[1]:.2f}"]
            )
            baseline = "–" if attention.baseline is None else f"{attention.baseline:.2f}"
            share = f"{100 * attention.share_above:.0f} %"
            rows.append([attention.layer, str(attention.head), f"{attention.weight:.2f}", *interval, baseline, share])
        table = columns(rows) if ranking[0].weight else ["hidden by the mask in every head"]
        lines += ["", f"{title}: {len(ranking)} head{'s' * (len(ranking) > 1)}{texts}", *table]
    return lines[1:]

"""Write the sentence pairs of the playground, views/web/playground/pairs.js, with the gold links of their words.

The sentences are those of the grammar of `attent data phrases` that have only words of a small vocabulary, all in the
singular. The English source of each French word follows from the grammar, which keeps the order of all words of one
entry: the second form of *black* translates the second *black*.

Long sentences of so few words are rare, so that this takes minutes:

    PYTHONPATH=src .venv/bin/python scripts/playground_pairs.py
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

from attent.tasks.phrases.grammar import (
    DETERMINERS,
    EXAMPLES,
    NOUNS,
    VERBS,
    WORDS,
    ParsedSentence,
    draw_sentence,
    inflect,
)

FILE = Path(__file__).parents[1] / "src" / "attent" / "views" / "web" / "playground" / "pairs.js"
TRAINING, HELD_OUT, SEED = 600, 100, 0
# The longest English sentence, in words, and the most sentences of each length; most of the grammar's are short.
LONGEST, OF_A_LENGTH = 10, 100
# English words by which an entry of the grammar is named.
LEXICON = {
    *("the", "a", "dog", "cat", "bird", "horse", "cow", "mouse", "girl", "king", "mat", "tree"),
    *("black", "white", "green", "small", "big", "tired", "happy", "often", "on", "under"),
    *("sings", "runs", "waits", "jumps", "sat", "sees", "likes", "hears"),
}
DIGITS = "0123456789abcdef"


@cache
def entries() -> list[tuple[set[str], set[str]]]:
    """Return the English and the French forms of each entry of the vocabulary."""
    pairs = [(noun.english, noun.french) for noun in NOUNS] + [(verb.english, verb.french) for verb in VERBS]
    pairs += [(english, french) for words in WORDS.values() for english, french in words if english]
    pairs += {(english, french) for english, french, is_plural in DETERMINERS if english in LEXICON and not is_plural}
    return [
        ({english.split("/")[0]}, {word for form in (0, 1) for word in inflect(french, form).split("_")})
        for english, french in pairs
        if english.split("/")[0] in LEXICON
    ]


def gold_links(english: Sequence[str], french: Sequence[str]) -> list[int] | None:
    """Return the place of the English source of each French word; None if a word is not in the vocabulary."""
    sources: list[int | None] = [None] * len(french)
    known = set[int]()
    for english_forms, french_forms in entries():
        places = [place for place, word in enumerate(english) if word in english_forms]
        known.update(places)
        targets = [place for place, word in enumerate(french) if word in french_forms]
        # a verb of two words: both translate one
        repeats = len(targets) // len(places) if places else 0
        for number, target in enumerate(targets):
            if number < repeats * len(places):
                sources[target] = places[number // repeats]
    links = [source for source in sources if source is not None]
    return links if len(known) == len(english) and len(links) == len(french) else None


def encode(sentence: ParsedSentence) -> str | None:
    """Return `English|French|links`, one hexadecimal digit per French word; None if too long or not covered."""
    english, french = sentence.english.split(), sentence.french.replace("'", "' ").split()
    links = gold_links(english, french) if len(english) <= LONGEST else None
    return links and f"{sentence.english}|{' '.join(french)}|{''.join(DIGITS[link] for link in links)}"


def main() -> None:
    """Draw different sentences, the examples of introductions first, which are held out."""
    draw = Random(f"{SEED} playground").random
    lines = [line for example in EXAMPLES if (line := encode(example))]
    lengths = Counter[int]()
    while len(lines) < TRAINING + HELD_OUT:
        line = encode(draw_sentence(draw))
        length = len(line.split("|")[0].split()) if line else LONGEST
        if line and line not in lines and lengths[length] < OF_A_LENGTH:
            lines.append(line)
            lengths[length] += 1
    # else long ones, of which there are more to draw, come last
    lines[len(EXAMPLES) :] = sorted(lines[len(EXAMPLES) :], key=lambda _: draw())
    parts = {"HELD_OUT": lines[:HELD_OUT], "TRAINING": lines[HELD_OUT:]}
    about = "// Sentence pairs with the place of each French word's source, written by scripts/playground_pairs.py.\n"
    text = "".join(
        f'\nexport const {name} = {json.dumps(";".join(part), ensure_ascii=False)}.split(";");\n'
        for name, part in parts.items()
    )
    FILE.write_text(about + text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""The corpus of phrases: `the black dog sings` → `le chien noir chante`, with the trees of the English sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from attent.errors import ArgumentError
from attent.tasks.phrases.grammar import EXAMPLES, ParsedSentence, draw_sentence, is_held_out

# Relations to the main verb that are written as pairs of words, by the names of their files.
PAIRS = {"subjects": "nsubj", "objects": "obj"}


def conllu(sentence: ParsedSentence) -> str:
    """Return an English sentence in the format CoNLL-U, with a blank line after it; there, heads count from 1."""
    rows = [
        f"{number}\t{word}\t_\t_\t_\t_\t{head + 1}\t{relation}\t_\t_\n"
        for number, (word, head, relation) in enumerate(
            zip(sentence.english.split(), sentence.heads, sentence.relations, strict=True), start=1
        )
    ]
    return f"# text = {sentence.english}\n{''.join(rows)}\n"


def _verb_pairs(sentence: ParsedSentence, relation: str) -> str:
    """Return a line for `read_word_pairs` of the main verb and its dependent; empty if there is none."""
    words, root = sentence.english.split(), sentence.heads.index(-1)
    return "".join(
        f"{sentence.english}\t{words[root]}:{word}\n"
        for word, head, name in zip(words, sentence.heads, sentence.relations, strict=True)
        if (head, name) == (root, relation)
    )


def phrases(sentences: int = 20_000, held_out: int = 1_000, seed: int = 0) -> dict[str, list[ParsedSentence]]:
    """Generate train, valid and test: different sentences, in which certain subjects of a verb are only in the test.

    Args:
        sentences: number of sentences to train on.
        held_out: number of sentences to validate on, and to test on; of the latter, the first two are `EXAMPLES`.
        seed: the same numbers and seed give the same sentences.
    """
    texts = {sentence.english for sentence in EXAMPLES}

    def part(name: str, count: int) -> list[ParsedSentence]:
        # a generator for each part, so that more sentences to train on leave the others unchanged
        draw, drawn = Random(f"{seed} phrases, {name}").random, list[ParsedSentence]()
        while len(drawn) < count:
            sentence = draw_sentence(draw)
            is_new = [is_held_out(*predication) for predication in sentence.predications]
            if (is_new[0] if name == "test" else not any(is_new)) and sentence.english not in texts:
                texts.add(sentence.english)
                drawn.append(sentence)
        return drawn

    test, valid = [*EXAMPLES, *part("test", held_out - len(EXAMPLES))], part("valid", held_out)
    return {"train": part("train", sentences), "valid": valid, "test": test}


def write_phrases(parts: Mapping[str, Sequence[ParsedSentence]], folder: Path) -> None:
    """Write the files of each part.

    NAME.tsv has English, tab and French per line, NAME.txt the English alone, and NAME.conllu its trees;
    NAME-subjects.tsv and NAME-objects.tsv have the main verb with its subject or object, for `attent show --find`.

    Args:
        parts: the sentences by the name of their part.
        folder: the folder; existing files are overwritten.

    Raises:
        ArgumentError: a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, part in parts.items():
            lines = {
                f"{name}.tsv": [f"{sentence.english}\t{sentence.french}\n" for sentence in part],
                f"{name}.txt": [f"{sentence.english}\n" for sentence in part],
                f"{name}.conllu": map(conllu, part),
                **{
                    f"{name}-{file}.tsv": [_verb_pairs(sentence, relation) for sentence in part]
                    for file, relation in PAIRS.items()
                },
            }
            for file, texts in lines.items():
                (folder / file).write_text("".join(texts), encoding="utf-8", newline="")
    except OSError as error:
        raise ArgumentError(f"{error.filename} cannot be written: {error.strerror}") from error

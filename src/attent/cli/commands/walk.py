"""attent walk: every number in the computation of attention."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent.cli.options import NUMBER, Loading, is_run
from attent.cli.output import say, write
from attent.errors import ArgumentError, refuse
from attent.setting import Bound, Flag, Help
from attent.text.sources import check_utf8

if TYPE_CHECKING:
    from attent.text.word_vectors import WordVectors
    from attent.views.render_walk import Walk

ENDINGS = (".html", ".htm")


@dataclass(frozen=True)
class TextOptions:
    """Options for a text without a run; the defaults are those of `attent.walk`."""

    score: Annotated[str | None, Help("Text: name of the score; scaled_dot unless given.")] = None
    scale: Annotated[bool, Flag("--scale/--no-scale"), Help("Text: divide scores by √Dk.")] = True
    heads: Annotated[int | None, Bound(1, 64), Help("Text: number of heads; 1 unless given.")] = None
    normalizer: Annotated[str | None, Help("Text: name of the normalizer; softmax unless given.")] = None
    mask: Annotated[
        str | None, Help("Text: causal, window:2, prefix:3, documents:0,0,1, or several of them joined by & and |.")
    ] = None
    position: Annotated[
        str | None, Help("Text: sinusoidal, learned, rotary, alibi or relative_bias; none unless given.")
    ] = None
    cross: Annotated[str | None, Help("Text: a second text for the first to attend to.", "TEXT")] = None
    vectors: Annotated[Path | None, Help("Text: file of word vectors (GloVe, word2vec, fastText).", "FILE")] = None
    width: Annotated[int | None, Bound(1, 64), Help("Text: width of random word vectors; 4 unless given.")] = None
    seed: Annotated[int | None, Bound(0, 2**63 - 1), Help("Text: seed of random, not trained, numbers.")] = None
    random: Annotated[bool, Help("Text: random numbers, of seed 0 unless given.")] = False


@dataclass(frozen=True)
class RunOptions:
    """Options for the head of a run."""

    head: Annotated[int | None, Bound(0), Help("Run: head, from 0; 0 unless given.")] = None
    kind: Annotated[str | None, Help("Run: encoder, decoder or cross attention; its first unless given.")] = None


def walk(
    text: TextOptions,
    run_options: RunOptions,
    loading: Loading,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN] [TEXT]", help="A text, or a run folder and a text.")
    ] = None,
    layer: Annotated[
        str | None, Help("whole for the whole layer, up to a run's most probable words; for a run also 0 or whole:0.")
    ] = None,
    out: Annotated[Path | None, Help("Also write a page that explains each number.", "FILE.html")] = None,
) -> None:
    """Walk through attention step by step, with equations, shapes and numbers labeled by the words.

    With a run, the numbers are those of its model. With only a text, they are those of a small trained model, or random
    if a seed or another part of the formula is given.
    """
    whole, number = _layer(layer)
    of_run = {"layer": number, **asdict(run_options)}
    arguments = words or ["The cat sat on the mat"]
    refuse(
        (out and out.suffix.lower() not in ENDINGS, f"--out must end in {ENDINGS[0]}, got {str(out)!r}"),
        (
            len(arguments) > 2,
            f"walk takes a text, or a run folder and a text, got {len(arguments)} arguments: quote the text",
        ),
    )
    check_utf8(arguments[-1])
    check_utf8(text.cross or "")
    if len(arguments) == 2:
        result = _walk_run(loading, arguments[0], arguments[1], text, whole=whole, options=of_run)
    else:
        _refuse(of_run, "needs a run: attent walk RUN TEXT")
        result = _walk_text(arguments[0], text, whole=whole)
    write(result)
    if out is not None:
        from attent.views.render_walk import walk_page

        say(f"written to {walk_page(result).save(out)}")


def _walk_run(
    loading: Loading, folder: str, sentence: str, text: TextOptions, *, whole: bool, options: dict[str, Any]
) -> Walk:
    """Return the walk through a head or a layer of a run while it reads a sentence."""
    if not Path(folder).exists():
        raise ArgumentError(f"there is no run folder {folder}: quote a text of several words")
    of_text = asdict(text)
    of_text["no-scale"] = None if of_text.pop("scale") else True
    of_text["random"] = of_text["random"] or None
    _refuse(of_text, "is for a text without a run: a run has its own")
    run = loading.stored_run(folder).tool
    from attent.views.walk import walk_run

    return walk_run(run, sentence, whole=whole, **_without_none(options))


def _walk_text(sentence: str, text: TextOptions, *, whole: bool) -> Walk:
    """Return the walk through the attention of a text without a run."""
    if is_run(sentence):
        raise ArgumentError(f"{sentence} is a run folder, which needs a text: attent walk {sentence} TEXT")
    # scores and positions are built for the widths, so only a normalizer may lack parameters
    _check_complete("normalizer", text.normalizer)
    from attent.views.walk import split_words
    from attent.views.walk import walk as walk_text

    options = asdict(text)
    if options.pop("random") and text.seed is None:
        options["seed"] = 0
    if text.vectors is not None:
        from attent.text import word_vectors

        # files of vectors often have words in lower case only
        forms = {form for word in split_words(f"{sentence} {text.cross or ''}") for form in (word, word.lower())}
        vectors = options["vectors"] = word_vectors.read(text.vectors, forms)
        sentence, options["cross"] = _with_vectors(sentence, vectors), text.cross and _with_vectors(text.cross, vectors)
    return walk_text(sentence, whole=whole, **_without_none(options))


def _with_vectors(text: str, vectors: WordVectors) -> str:
    """Return a text without the words that have no vector, which are reported; as it is if fewer than two are left."""
    from attent.views.walk import split_words

    words = split_words(text)
    known_words = [word for word in words if word in vectors or word.lower() in vectors]
    if not 2 <= len(known_words) < len(words):
        return text
    missing = dict.fromkeys(word for word in words if word not in known_words)
    say(f"left out, without a vector: {', '.join(map(repr, missing))}")
    return " ".join(known_words)


def _layer(text: str | None) -> tuple[bool, int | None]:
    """Return whether to walk through the whole layer, and the layer's number if one is given."""
    match = re.fullmatch(rf"(whole)?(?:(?(1):)({NUMBER.pattern}))?", text or "")
    if match is None or text == "":
        raise ArgumentError(f"--layer must be a number from 0, whole, or whole:0, got {text!r}")
    return match[1] is not None, None if match[2] is None else int(match[2])


def _check_complete(kind: str, name: str | None) -> None:
    """Raise `ArgumentError` if a part needs more than its name."""
    from attent.attention import choices

    missing = None if name is None else choices.missing(kind, name)
    if missing is not None:
        example, complete_names = missing
        raise ArgumentError(
            f"--{kind} {name} needs values that a command cannot give: "
            f"use {', '.join(complete_names)}; or in Python: attent.walk(TEXT, {example})"
        )


def _without_none(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _refuse(options: dict[str, Any], reason: str) -> None:
    refuse(*((value is not None, f"--{name} {reason}") for name, value in options.items()))

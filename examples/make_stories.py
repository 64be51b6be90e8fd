"""Make a corpus of short stories, each with a question and its supporting sentences.

    python examples/make_stories.py --out stories --kinds one,two --stories 60000 --with-support

Writes train, valid and test files, each as .tsv and .jsonl.
"""

from __future__ import annotations

from collections.abc import Sequence

from corpus_options import CorpusOptions
from pydantic import ValidationError
from story_corpus import KINDS, StoriesSettings, stories

from attent.errors import ArgumentError, AttentError, check_known, first_fault


def settings_of(kinds: str, count: int, held_out: int, seed: int) -> StoriesSettings:
    """Return the settings of the options.

    Raises:
        ArgumentError: a kind is unknown or named twice.
        ValidationError: there are too many stories.
    """
    names = list(KINDS) if kinds == "all" else [name.strip() for name in kinds.split(",")]
    for name in names:
        check_known("kind of question", name, KINDS)
    if len(set(names)) != len(names):
        raise ArgumentError(f"--kinds names a kind twice: {kinds}")
    values = {"kinds": names, "training_stories": count, "held_out_stories": held_out, "seed": seed}
    return StoriesSettings.model_validate(values)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the corpus, and print its sizes."""
    parser = CorpusOptions(__doc__)
    parser.add_argument("--kinds", default="all", help=f"question kinds, joined by commas: {', '.join(KINDS)}")
    parser.add_count("--stories", 20_000, "number of training stories")
    parser.add_count("--held-out", 1_000, "number of validation stories, and of test stories")
    parser.add_argument(
        "--with-support", action="store_true", help="write supporting sentences before each answer in the .tsv files"
    )
    options = parser.parse_args(arguments)
    try:
        corpus = stories(settings_of(options.kinds, options.stories, options.held_out, options.seed))
        corpus.write(options.out, with_support=options.with_support)
    except ValidationError as error:
        parser.error(first_fault(error))
    except AttentError as error:
        parser.error(str(error))
    print(
        f"{len(corpus.train):,} stories to train on, {len(corpus.validation):,} to validate on "
        f"and {len(corpus.test):,} to test on, in {options.out}"
    )


if __name__ == "__main__":
    main()

"""Translation of lines of text in chunks, as printed by `attent translate`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from attent.alignment.pharaoh import pharaoh
from attent.runs.config import RunConfig
from attent.search.search import Translation
from attent.tasks.dates.generated import output_check
from attent.tasks.translation import alignment
from attent.tasks.translation.confidence import Confidence, repeats_itself
from attent.tasks.translation.engine import Engine
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import UNK, unicode_names, unknown_pieces
from attent.text.units import Detokenizer, SpacingCheck

SEPARATOR = " ||| "
# Maximum line numbers named in a message.
NAMED = 5


@dataclass(frozen=True)
class AlignedTranslation:
    """A translation that is ready to print.

    It has the text, with unknown pieces replaced if requested, and the alignment if requested.
    """

    text: str
    alignment: str | None
    translation: Translation


@dataclass(frozen=True)
class LineFormat:
    """The output format of translations.

    Args:
        as_json: whether a line is a JSON object, with scores in nats.
        scores: whether translations are numbered, and followed by their scores.
        alignments: whether translations are followed by their links.
        replace_unknown: whether unknown pieces are replaced by the aligned source words.
        detokenizer: joins words and punctuation; None to leave them unchanged.
        minimum_confidence: a line whose best translation has a lower confidence, 0 to 1, stays untranslated; None to
            compute no confidences, which need a `Translator`.
    """

    as_json: bool = False
    scores: bool = False
    alignments: bool = False
    replace_unknown: bool = False
    detokenizer: Detokenizer | None = None
    minimum_confidence: float | None = None


class LineTranslator:
    """Translates lines, and reports those that are refused, malformed, repetitive or spaced differently.

    Args:
        engine: translates the lines; alignments and replacements need a `Translator`.
        search: returns the translations of each line, the best first.
        say: shows a message about a line to the user.
        config: the run's config.
        format: output format of the translations.

    Attributes:
        is_empty: whether there have been no lines.
        repetitive: the numbers, from 1, of the lines whose translations repeat themselves.
    """

    def __init__(
        self,
        engine: Engine,
        search: Callable[[Sequence[str]], list[list[Translation]]],
        say: Callable[[str], None],
        config: RunConfig,
        format: LineFormat,
    ) -> None:
        self.engine, self.search, self.say, self.format = engine, search, say, format
        self.check, self.spacing = output_check(config.corpus), SpacingCheck(config.spacing)
        self.is_empty, self.repetitive = True, list[int]()

    def translate(self, chunk: Sequence[tuple[int, str]]) -> tuple[list[str], bool]:
        """Return the output of numbered lines, and whether every line has a usable translation."""
        self.is_empty, is_usable, output = False, True, list[str]()
        results = self.search([line for _, line in chunk])
        confidences = self._confidences([n_best[0] for n_best in results])
        for (number, line), n_best, confidence in zip(chunk, self._align(results), confidences, strict=True):
            problem = None if confidence is None else confidence.problem(self.format.minimum_confidence)
            if problem is not None:
                n_best = [replace(n_best[0], text=line, alignment=n_best[0].alignment and "")]
            if self.format.as_json:
                output.append(json_line(n_best, confidence, problem))
            else:
                output += [text_line(number, aligned, has_scores=self.format.scores) for aligned in n_best]
            if message := self.spacing.add(line):
                self.say(message)
            if repeats_itself(n_best[0].translation):
                self.repetitive.append(number + 1)
            is_usable &= self._report(number + 1, n_best[0], problem)
        return output, is_usable

    @property
    def warning(self) -> str | None:
        """A message about the lines whose translations repeat themselves, if there are any."""
        if not (count := len(self.repetitive)):
            return None
        translations = "a translation repeats itself" if count == 1 else f"{count:,} translations repeat themselves"
        lines = ",".join(map(str, self.repetitive[:NAMED]))
        return f"{translations}, line {lines}: --no-repeat-ngram 4 prevents this"

    def _confidences(self, best: Sequence[Translation]) -> Sequence[Confidence | None]:
        """Return the confidence in each translation; None for all unless requested."""
        if self.format.minimum_confidence is None or not isinstance(self.engine, Translator):
            return [None] * len(best)
        return Confidence.of(self.engine, best)

    def _align(self, n_best_lists: Sequence[Sequence[Translation]]) -> list[list[AlignedTranslation]]:
        """Return the translations of each line, ready to print."""
        translations, pieces = [translation for n_best in n_best_lists for translation in n_best], None
        links: list[str | None] = [None] * len(translations)
        if isinstance(self.engine, Translator):
            if self.format.replace_unknown:
                texts = alignment.replace_unknown(self.engine, translations)
                pieces = [of_tokens for _, of_tokens in texts]
                translations = [replace(item, text=text) for item, (text, _) in zip(translations, texts, strict=True)]
            if self.format.alignments:
                alignments = alignment.Alignment.of(self.engine, translations, pieces=pieces)
                links = [pharaoh(item.links) for item in alignments]
        join = self.format.detokenizer or str
        rows = (
            AlignedTranslation(join(item.text), of_item, item)
            for item, of_item in zip(translations, links, strict=True)
        )
        return [[next(rows) for _ in n_best] for n_best in n_best_lists]

    def _report(self, number: int, aligned: AlignedTranslation, problem: str | None) -> bool:
        """Report a line that was refused or has a problem, unknown pieces, or a malformed translation.

        Return whether the translation is usable.
        """
        source = aligned.translation.source
        if source.refusal is None and UNK in source.ids:
            pieces = unknown_pieces(source.text, self.engine.source_tokenizer)
            self.say(f"line {number}: unknown to this model: {', '.join(map(unicode_names, pieces))}")
        problem = source.refusal or problem or (self.check(aligned.text) if self.check is not None and source else None)
        if problem is not None:
            self.say(f"line {number}: {problem}")
        return problem is None


def text_line(number: int, aligned: AlignedTranslation, *, has_scores: bool) -> str:
    """Format a translation for printing: by itself, or with the zero-based number of its source and its scores."""
    cells = [aligned.text] if aligned.alignment is None else [aligned.text, aligned.alignment]
    if has_scores:
        scores = aligned.translation
        parts = f"log_probability={scores.log_probability:.6f} length_penalty={scores.length_penalty:.6f}"
        cells = [str(number), *cells, parts, f"{scores.score:.6f}"]
    return SEPARATOR.join(cells)


def json_line(
    n_best: Sequence[AlignedTranslation], confidence: Confidence | None = None, problem: str | None = None
) -> str:
    """Return the translations of a line as JSON, in nats, and the reason why it stays untranslated, if there is one."""
    source = n_best[0].translation.source
    # a text that was not translated has no probability
    is_read = bool(source.original) and source.refusal is None and problem is None
    values = [
        {"text": aligned.text}
        | {
            name: getattr(aligned.translation, name) if is_read else None
            for name in ("score", "log_probability", "length_penalty")
        }
        | ({} if aligned.alignment is None else {"alignment": aligned.alignment})
        for aligned in n_best
    ]
    if confidence is not None:
        values[0] |= vars(confidence)
    error = source.refusal or problem
    refusal = {} if error is None else {"error": error}
    return json.dumps({"source": source.original, "translations": values} | refusal, ensure_ascii=False)

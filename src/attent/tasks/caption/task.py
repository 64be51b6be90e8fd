"""The task of putting pictures into words, and its corpora: files with captions, or pictures with text files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from attent.errors import DataError, refuse
from attent.runs.config import RunConfig
from attent.search.settings import GREEDY, SearchSettings
from attent.setting import Help
from attent.tasks.caption.captioner import Captioner, load, picture_inputs
from attent.tasks.classification.corpus import check_inputs
from attent.tasks.classification.inputs import INPUTS, MAX_SIDE, Inputs, PictureInputs, PictureRows
from attent.tasks.classification.pictures import Pictures, open_picture, picture_files, read_pixels
from attent.tasks.classification.settings import ImagesSettings
from attent.tasks.evaluation import Evaluation, Results, Say, result_lines
from attent.tasks.suggestions import Tables, suggest_captions
from attent.tasks.task import Evaluator, Task, TaskRun, TaskSettings, Vocabularies
from attent.tasks.translation.evaluation import bleu, exact_match
from attent.tasks.translation.task import sample_lines
from attent.text.batches import Batch, BatchSize, Bitext, Sequences, batch_of
from attent.text.corpus import MAX_VALIDATION, split_by_class
from attent.text.readers import read_lines
from attent.text.settings import File, TokenizerKind
from attent.text.text import Pair
from attent.text.tokenizer import BOS, EOS, Tokenizer
from attent.text.tokenizers import learn
from attent.training.loss import mean_loss, translation_cross_entropy
from attent.views.scene import Scene

TRAIN, VALIDATION, TEST = PARTS = ("train", "valid", "test")
# The maximum number of pixels in all.
MAX_PIXELS = 2**31


class CaptionsSettings(ImagesSettings, frozen=True):
    """Settings of pictures with captions; a picture is read as a sequence of patches, its regions."""

    max_patches: ClassVar = 16

    source: Annotated[File, Help(metavar="FOLDER|FILE.tsv")] = Field(
        description="folder with train.tsv, of lines with picture, tab and caption, or with a .txt beside each "
        "picture; or such a .tsv"
    )
    tokenizer: TokenizerKind = Field("word", description="what captions are cut into: char, word, bpe or unigram")
    vocabulary: int | None = Field(None, description="ids of the tokenizer; by default by the size of the captions")
    maximum_length: int = Field(256, ge=1, description="maximum tokens of a caption; longer ones are errors")


class CaptionCorpus:
    """Pictures with captions; see `attent.tasks.task.TaskCorpus`.

    Args:
        settings: the settings of the corpus.

    Attributes:
        pairs: the file of each picture, and its caption.
        pictures: the pictures.
        parts: the rows to train on, to validate on and to test on, by the names in `PARTS`; without files of their own,
            validation and test are split off.
        inputs: the preprocessing, fitted to the pictures to train on.

    Raises:
        ArgumentError: the pictures differ in size, and no size is given, or no patch size suits them.
        AttentError: Pillow is not installed.
        DataError: a file is missing, damaged, too large, outside of the folder or listed twice, or a caption is empty.
    """

    folder: Path | None = None

    def __init__(self, settings: CaptionsSettings) -> None:
        of_parts = read_captions(settings.source)
        self.settings, self.pairs = settings, [pair for pairs in of_parts.values() for pair in pairs]
        if twice := [file for file, count in Counter(pair.source for pair in self.pairs).items() if count > 1]:
            raise DataError(f"{settings.source} must list a picture once, and has {twice[0]} twice")
        ends = np.cumsum([*map(len, of_parts.values())])
        self.parts = dict(zip(of_parts, np.split(np.arange(ends[-1]), ends[:-1]), strict=True))
        for part, share, limit in ((TEST, settings.test, None), (VALIDATION, settings.validation, MAX_VALIDATION)):
            if part not in self.parts:
                rows = self.parts[TRAIN]
                split = split_by_class(np.zeros(len(rows), np.int64), share, settings.seed, limit)
                self.parts[TRAIN], self.parts[part] = (rows[part_rows] for part_rows in split)
        files = [Path(pair.source) for pair in self.pairs]
        width, height = settings.size[::-1] if settings.size else open_picture(files[0]).size
        if max(height, width) > MAX_SIDE or height * width * len(files) > MAX_PIXELS:
            raise DataError(f"{len(files):,} pictures of {height} x {width} pixels are too large: give --size")
        self.pictures = Pictures(read_pixels(files, settings.size, settings.colours), None, ())
        self.inputs = PictureInputs.of(self.pictures, self.parts[TRAIN], settings)

    @property
    def table(self) -> dict[str, Any]:
        """Return the settings for the run folder."""
        return {"captions": self.settings.model_dump(mode="json", exclude_unset=True)}

    def report(self) -> list[str]:
        """Return a report on the sizes of the parts."""
        counts = ", ".join(f"{len(self.parts[part]):,} of {part}" for part in PARTS)
        return [
            f"captions: {counts}; pictures of {self.inputs.height} x {self.inputs.width} pixels in "
            f"{self.inputs.length} patches"
        ]

    def examples(self, part: str, inputs: PictureInputs, tokenizer: Tokenizer) -> CaptionExamples:
        """Encode the captions of a part; only those to train on are augmented.

        Raises:
            ArgumentError: the preprocessing is for pictures of another size or other colors.
            DataError: a caption is too long.
        """
        check_inputs(Inputs(labels=(), inputs=inputs), Inputs(labels=(), inputs=self.inputs))
        captions = [self.pairs[row].target for row in self.parts[part]]
        targets = Sequences([[BOS, *tokenizer.encode(caption), EOS] for caption in captions])
        if (longest := targets.lengths.max(initial=0) - 2) > (limit := self.settings.maximum_length):
            caption = captions[targets.lengths.argmax()]
            raise DataError(f"a caption has {longest:,} tokens, more than {limit:,}: {caption[:60]!r}")
        augmentation = self.settings.augmentation if part == TRAIN else None
        return CaptionExamples(PictureRows(self.pictures, inputs, augmentation), self.parts[part], targets)


class CaptionExamples(Bitext):
    """Pictures as patches, and their encoded captions.

    Args:
        pictures: the pictures.
        selected: the picture of each caption, (N,).
        captions: the tokens of each caption, with BOS and EOS.
    """

    row_name = "caption"

    def __init__(self, pictures: PictureRows, selected: np.ndarray, captions: Sequences) -> None:
        self.pictures, self.selected, self.target = pictures, selected, captions

    def __len__(self) -> int:
        return len(self.target)

    @property
    def token_sequences(self) -> Mapping[str, Sequences]:
        return {"target": self.target}

    def lengths(self) -> np.ndarray:
        return np.maximum(self.pictures.lengths[self.selected], self.target.lengths - 1)

    def fingerprint(self) -> list[np.ndarray]:
        return [self.target.lengths, self.target.tokens, self.pictures.pixels[self.selected].sum((1, 2, 3))]

    def batch(self, rows: np.ndarray) -> Batch:
        return self.augmented(rows)

    def augmented(self, rows: np.ndarray, seed: int = 0, epoch: int | None = None) -> Batch:
        pictures = self.selected[rows]
        return batch_of(self.pictures.read(pictures, epoch), self.pictures.lengths[pictures], self.target, rows, 1)


def read_captions(source: str) -> dict[str, list[Pair]]:
    """Return the pictures and captions of each part that a source has; pictures are not opened.

    Args:
        source: a folder with train.tsv, and maybe valid.tsv and test.tsv; a folder of pictures with a .txt of the same
            name each, a line with its caption; or a .tsv, whose pictures are in its folder.

    Returns:
        The file of each picture and its caption, at least one.

    Raises:
        DataError: see `CaptionCorpus`.
    """
    path = Path(source)
    lists = {TRAIN: path} if path.is_file() else {part: path / f"{part}.tsv" for part in PARTS}
    lines = {part: read_lines(file) for part, file in lists.items() if file.is_file()}
    lines = lines if TRAIN in lines else {TRAIN: _beside(path)}
    folder = path.parent if path.is_file() else path
    pairs = {
        part: [_pair(folder, line, f"{source}, {part} line {number}") for number, line in enumerate(of_part, start=1)]
        for part, of_part in lines.items()
    }
    if not all(pairs.values()):
        raise DataError(f"{source} must be a .tsv or a folder with pictures and captions, and has none")
    return pairs


def _beside(folder: Path) -> Iterator[str]:
    """Yield lines of picture, tab and caption, from the text file beside each picture."""
    for file in picture_files(folder):
        for caption in [*read_lines(file.with_suffix(".txt"))] or [""]:
            yield f"{file.relative_to(folder)}\t{caption}"


def _pair(folder: Path, line: str, location: str) -> Pair:
    """Return a picture, which must be in the folder after following symbolic links, and its caption."""
    name, _, caption = line.partition("\t")
    if not caption.strip() or "\t" in caption:
        raise DataError(f"{location}: must be picture, tab, caption, got {line[:60]!r}")
    try:
        picture = (folder / name).resolve(strict=True)
    # no such file, a null byte, or a loop of links
    except (OSError, ValueError, RuntimeError):
        picture = folder
    refuse(
        (not picture.is_file(), f"{location}: there is no picture {name!r} in {folder}"),
        (not picture.is_relative_to(folder.resolve()), f"{location}: the picture {name!r} is outside of {folder}"),
        kind=DataError,
    )
    return Pair(str(picture), caption.strip())


class CaptionTask(Task[CaptionCorpus]):
    """Learns to put pictures into words."""

    name = "caption"
    does = "captions"
    goal = "caption"
    command = "attent caption {run} PICTURE"
    tokenizers = ("target",)
    model_kinds = ("transformer", "rnn")
    tables: ClassVar = {"captions": CaptionsSettings}
    loss = staticmethod(translation_cross_entropy)
    load = staticmethod(load)

    def model_settings(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        return {"input": "vectors"}

    def suggest(self, files: Mapping[str, str], minutes: float | None = None) -> tuple[Tables, int]:
        captions = len(read_captions(files["source"])[TRAIN])
        return suggest_captions(captions), captions

    def corpus(self, settings: TaskSettings) -> CaptionCorpus:
        return CaptionCorpus(settings.captions)

    def learn_vocabularies(self, corpus: CaptionCorpus) -> Vocabularies:
        captions, kind = [corpus.pairs[row].target for row in corpus.parts[TRAIN]], corpus.settings.tokenizer
        tokenizer = learn(kind, captions, corpus.settings.vocabulary)
        files = {INPUTS: Inputs(labels=(), inputs=corpus.inputs).model_dump_json(indent=2) + "\n"}
        return Vocabularies({"target": kind}, (tokenizer,), files, (corpus.inputs.size, tokenizer.size))

    def encode(self, corpus: CaptionCorpus, vocabularies: Vocabularies) -> CaptionExamples:
        return corpus.examples(TRAIN, picture_inputs(vocabularies.files), vocabularies.tokenizers[0])

    def evaluator(
        self, model: Any, corpus: CaptionCorpus, vocabularies: Vocabularies, settings: TaskSettings
    ) -> Evaluator:
        return CaptionEvaluator(
            Captioner(model, picture_inputs(vocabularies.files), vocabularies.tokenizers[0]),
            corpus,
            BatchSize(settings.training.batch_pairs, settings.training.batch_tokens),
        )

    def sizes(self, config: RunConfig, tokenizers: Sequence[Tokenizer]) -> tuple[int, int]:
        return config.sizes[0] if config.sizes else 0, tokenizers[0].size

    def evaluate(
        self, run: TaskRun, say: Say, *, images: str | None = None, search: SearchSettings = GREEDY
    ) -> Evaluation:
        """Evaluate a run on the held-out pictures of its corpus, which is read again, or on other pictures.

        Args:
            run: the run.
            say: shows a message to the user.
            images: a source of pictures with captions; of a folder with train.tsv, the last of its parts.
            search: search settings.

        Raises:
            ArgumentError: the corpus cannot be read again.
            DataError: the pictures or captions cannot be read, or the corpus has changed.
        """
        if images is None:
            results = run.validate(say, search)
        else:
            part, pairs = [*read_captions(images).items()][-1]
            name = part if Path(images).is_dir() else Path(images).stem
            results = {name: {"captions": len(pairs), **_score(run.tool, pairs, search)[1]}}
        return Evaluation(results, result_lines(results))

    def scene(self, run: TaskRun, text: str, *, gradients: bool = False, translation: str | None = None) -> Scene:
        """Return the attention of a run while it puts a picture file into words.

        Args:
            run: the run.
            text: the file.
            gradients: see `Inference.scene`.
            translation: the caption to show; the run's own by default.
        """
        return run.tool.scene(text, translation, gradients=gradients)

    def unknown_words(self, run: TaskRun, text: str) -> list[str]:
        return []


class CaptionEvaluator(Evaluator):
    """Evaluates a captioner on the held-out parts of its corpus."""

    def __init__(self, captioner: Captioner, corpus: CaptionCorpus, size: BatchSize) -> None:
        self._captioner, self._size = captioner, size
        self._parts = {part: [corpus.pairs[row] for row in rows] for part, rows in corpus.parts.items()}
        self._validation = corpus.examples(VALIDATION, captioner.inputs, captioner.tokenizer)
        self.rows = len(self._validation)

    def validate(self, say: Say) -> dict[str, float]:
        if not (pairs := self._parts[VALIDATION]):
            return {}
        captions, scores = _score(self._captioner, pairs, self.search)
        for line in sample_lines(pairs, captions):
            say(line)
        return {"loss": mean_loss(self._captioner.model, self._validation, self._size)} | scores

    def results(self, last: Mapping[str, float]) -> Results:
        test = _score(self._captioner, self._parts[TEST], self.search)[1] if self._parts[TEST] else {}
        parts = {VALIDATION: last, TEST: test}
        return {part: {"captions": len(self._parts[part]), **scores} for part, scores in parts.items() if scores}


def _score(captioner: Captioner, pairs: Sequence[Pair], search: SearchSettings) -> tuple[list[str], dict[str, float]]:
    """Return the caption of each picture, and scores by name."""
    captions = captioner.caption([pair.source for pair in pairs], search)
    references = [pair.target for pair in pairs]
    return captions, {"exact match": exact_match(captions, references), "BLEU": bleu(captions, references).score}

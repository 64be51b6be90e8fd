"""Answers to the page's requests, as plain numbers and dictionaries."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from attent.attention.capture.intervene import Change, intervene
from attent.errors import ArgumentError, DataError, check_index
from attent.explorer.loaded_run import LoadedRun
from attent.explorer.pooling import AdjustedWeights
from attent.explorer.requests import (
    ColumnRequest,
    ExampleRequest,
    HeadRequest,
    RowRequest,
    SwitchedHead,
    TextRequest,
    TileRequest,
    TranslateRequest,
)
from attent.explorer.scheduler import LRUCache, Scheduler
from attent.explorer.tiles import HeadView, MapRegion, TilePyramid, sampled_head_statistics
from attent.search.settings import SearchSettings
from attent.tasks.classification.classifier import scene_of_example
from attent.tasks.classification.task import ClassificationTask
from attent.tasks.fill_mask.task import MaskedLMTask
from attent.tasks.text_generation.stepwise import StepwiseGeneration
from attent.tasks.text_generation.task import TextGenerationTask
from attent.tasks.translation.stepwise import StepwiseDecoding
from attent.tasks.translation.task import TranslationTask
from attent.text.tokenizer import EOS, prompt_of
from attent.views.build_scene import build_scene
from attent.views.pages.payload import rgb
from attent.views.scene import Scene

# Tokens of a text that is read at once.
MAX_TOKENS = 32_768
# Tokens of a text up to which each token of its translation comes with its weights, and the whole with gradients.
MAX_TOKENS_WITH_WEIGHTS = 512
# Guesses for a blank, and classes.
BEST = 5
# Characters of a title.
MAX_TITLE = 200
# Scenes stored for each run; each holds the queries and keys of its maps.
MAX_SCENES = 8
Answer = TypeVar("Answer")


class SceneStore:
    """Scenes by number: fixed ones, and the last few of each run.

    Args:
        fixed: scenes that are never dropped, numbered from 0.
        bound: how many other scenes of each run are stored.
    """

    def __init__(self, fixed: Sequence[Scene] = (), bound: int = MAX_SCENES) -> None:
        self.fixed, self.bound = tuple(fixed), bound
        # by number, each with its run, the most recently used one last
        self._recent: OrderedDict[int, tuple[int, Scene]] = OrderedDict()
        self._next = len(self.fixed)
        self._lock = threading.Lock()

    def add(self, scene: Scene, run_number: int = 0) -> int:
        """Store a scene, and drop the least recently used one of the same run if there are too many.

        Returns:
            Its number, which no other scene ever has.
        """
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._recent[number] = (run_number, scene)
            of_run = [number for number, (owner, _) in self._recent.items() if owner == run_number]
            for old in of_run[: -self.bound]:
                del self._recent[old]
        return number

    def __getitem__(self, number: int) -> Scene:
        if 0 <= number < len(self.fixed):
            return self.fixed[number]
        with self._lock:
            if number not in self._recent:
                raise ArgumentError(f"view {number} is not known, or was forgotten for later ones: make it again")
            self._recent.move_to_end(number)
            return self._recent[number][1]


class Explorer:
    """Answers requests of pages; one at a time computes.

    Args:
        runs: the loaded runs, shown side by side.
        scenes: scenes to show from the start.
        text: the initial text in the text box.
        longest: the most tokens that a text may have.
    """

    def __init__(
        self, runs: Sequence[LoadedRun] = (), scenes: Sequence[Scene] = (), text: str = "", *, longest: int = MAX_TOKENS
    ) -> None:
        self.runs, self.text, self.longest = tuple(runs), text, longest
        self.scheduler = Scheduler()
        self.tiles = TilePyramid(self.scheduler, LRUCache())
        self.scenes = SceneStore(scenes)

    def close(self, seconds: float | None = None) -> bool:
        """Compute nothing more; see `Scheduler.close`."""
        return self.scheduler.close(seconds)

    def describe(self) -> dict[str, Any]:
        """Describe runs and scenes for JSON."""
        scenes = list(range(len(self.scenes.fixed)))
        return {
            "runs": [run.describe() for run in self.runs],
            "scenes": scenes,
            "text": self.text,
            "longest": self.longest,
        }

    def region(self, scene_number: int, request: HeadRequest) -> MapRegion:
        """Return the row, the column or the tile that a request names; the whole map, pooled, if it names none."""
        view = self._view(scene_number, request)
        match request:
            case RowRequest():
                return self._now(lambda: view.row(check_index("query", request.query, view.shape[0])))
            case ColumnRequest():
                return self._now(lambda: view.column(check_index("key", request.key, view.shape[1])))
            case TileRequest():
                return self.tiles.tile(view, request.level, request.y, request.x, request.reduction)
            case _:
                return self._now(view.thumbnail)

    def group_statistics(self, scene_number: int, group_name: str) -> dict[str, Any]:
        """Return the statistics of every head of a group, and of how many queries one was computed at most."""
        group = self.scenes[scene_number].group(group_name)
        compute = partial(sampled_head_statistics, is_self_attention=group.is_self_attention)
        heads, steps = zip(*(self._now(partial(compute, layer)) for layer in group.layers), strict=True)
        return {"figures": list(heads), "every": max(steps)}

    def pixels(self, scene_number: int) -> bytes:
        """Return the picture of a scene: red, green and blue of each pixel.

        Raises:
            ArgumentError: it has none.
        """
        picture = self.scenes[scene_number].picture
        if picture is None:
            raise ArgumentError(f"view {scene_number} has no picture")
        return rgb(picture).tobytes()

    def translate(self, request: TranslateRequest) -> Iterator[dict[str, Any]]:
        """Iterate over the events of a translation: the source, then each token, then the scene of the whole.

        Raises:
            ArgumentError: the run does not translate, or the text or the prefix is not valid for it.
            DataError: the text is too long.
        """
        translator = self._run_for_task(request.run, TranslationTask.name).tool
        now = self._without_heads(translator.model, request.off)
        source = translator.read(request.text)
        scene_of = partial(build_scene, title=source.text[:MAX_TITLE])
        tokenizer = translator.target_tokenizer
        more = tokenizer.encode(request.more)[len(prompt_of(tokenizer)) :] if request.more else []
        decoding = StepwiseDecoding(translator, source, [*request.prefix, *more], top_k=request.best)
        self._check_length(len(decoding.source.ids))
        self._check_length(len(decoding.prefix), "prefix")
        yield {"kind": "start", "source": decoding.labels, "unknown": decoding.unknown_pieces}
        if len(decoding.source.ids) > MAX_TOKENS_WITH_WEIGHTS and (reading := now(decoding.encoder_maps)):
            # the encoder's maps can be explored long before the translation of a long text ends
            yield {"kind": "scene", "scene": self.scenes.add(scene_of(reading), request.run)}
        if request.beam > 1:
            settings = SearchSettings(beam=request.beam)
            tokens = now(lambda: translator.search(source, settings, prefixes=decoding.prefix)[0].tokens)
            decoding = StepwiseDecoding(
                translator, source, tokens, top_k=request.best, forced_length=len(decoding.prefix)
            )
        steps = iter(decoding)
        while (step := now(lambda: next(steps, None))) is not None:
            weights = now(partial(_last_step_weights, decoding, request.view, has_ended=step.chosen.token == EOS))
            best = [asdict(candidate) for candidate in step.candidates]
            yield {
                "kind": "token",
                "said": asdict(step.chosen),
                "best": best,
                "forced": step.is_forced,
                "weights": weights,
            }
        gradients = max(len(decoding.source.ids), len(decoding.tokens)) <= MAX_TOKENS_WITH_WEIGHTS
        scene = now(lambda: scene_of(decoding.map(gradients=gradients)))
        translation = translator.target_tokenizer.decode(decoding.tokens)
        yield {
            "kind": "end",
            "scene": self.scenes.add(scene, request.run),
            "text": translation,
            "tokens": decoding.tokens,
        }

    def generate(self, request: TranslateRequest) -> Iterator[dict[str, Any]]:
        """Iterate over the events of a continuation: BOS and the prompt, then each token, then the scene of the whole.

        Greedily.

        Raises:
            ArgumentError, DataError: the run does not generate text, or the text or the prefix is not valid for it or
                too long.
        """
        generator = self._run_for_task(request.run, TextGenerationTask.name).tool
        now = self._without_heads(generator.model, request.off)
        more = generator.encode(request.more) if request.more else []
        generation = StepwiseGeneration(generator, request.text, [*request.prefix, *more], top_k=request.best)
        self._check_length(len(generation.prompt) + len(generation.prefix))
        labels = generation.labels
        yield {"kind": "start", "source": labels, "unknown": []}
        steps = iter(generation)
        while (step := now(lambda: next(steps, None))) is not None:
            weights = now(partial(_weights_of_prompt, generation, request.view))
            best = [asdict(candidate) for candidate in step.candidates]
            yield {
                "kind": "token",
                "said": asdict(step.chosen),
                "best": best,
                "forced": step.is_forced,
                "weights": weights,
            }
        text = request.text + generation.continuation
        gradients = len(generation.prompt) + len(generation.tokens) <= MAX_TOKENS_WITH_WEIGHTS
        scene = now(lambda: build_scene(generation.map(gradients=gradients), title=text[:MAX_TITLE]))
        yield {"kind": "end", "scene": self.scenes.add(scene, request.run), "text": text, "tokens": generation.tokens}

    def fill(self, request: TextRequest) -> dict[str, Any]:
        """Return guesses for the blanks of a text, and its scene.

        Raises:
            ArgumentError, DataError: the run does not fill blanks, there are none, or the text is too long.
        """
        filler = self._run_for_task(request.run, MaskedLMTask.name).tool
        now = self._without_heads(filler.model, request.off)
        self._check_length(len(filler.tokenizer.encode(request.text)))
        blanks = now(lambda: filler.fill(request.text, BEST))
        gradients = len(filler.tokenizer.encode(request.text)) <= MAX_TOKENS_WITH_WEIGHTS
        scene = now(lambda: build_scene(filler.map(request.text, gradients=gradients), title=request.text[:MAX_TITLE]))
        guesses = [{"place": blank.position, "guesses": [asdict(guess) for guess in blank.guesses]} for blank in blanks]
        return {
            "scene": self.scenes.add(scene, request.run),
            "blanks": guesses,
            "unknown": filler.unknown_words(request.text),
        }

    def classify(self, request: TextRequest | ExampleRequest) -> dict[str, Any]:
        """Return the most probable classes of a text or an example, and its scene.

        Raises:
            ArgumentError, DataError: the run does not classify, there is no such example, or the text is empty or too
                long.
        """
        run = self._run_for_task(request.run, ClassificationTask.name)
        classifier = run.tool
        now = self._without_heads(classifier.model, request.off)
        if isinstance(request, TextRequest):
            if classifier.tokenizer is None:
                # a classifier of pictures would take the text for the name of a file on this machine
                raise ArgumentError(f"{run.name} reads {run.input_kind}: choose one of its examples")
            if not request.text.strip():
                raise DataError("there is nothing to classify: the text is empty")
            self._check_length(len(classifier.tokenizer.encode(request.text)))
            data, title = classifier.data([request.text]), request.text[:MAX_TITLE]
            gradients = len(classifier.tokenizer.encode(request.text)) <= MAX_TOKENS_WITH_WEIGHTS
        else:
            data, title, gradients = run.example(request.row), f"example {request.row}", True
        prediction = now(lambda: classifier.classify(data, best=BEST)[0])
        scene = now(lambda: scene_of_example(classifier, data, title=title, gradients=gradients))
        best = [
            {"label": label, "probability": probability}
            for label, probability in zip(prediction.labels, prediction.probabilities, strict=True)
        ]
        return {"scene": self.scenes.add(scene, request.run), "best": best}

    def _now(self, compute: Callable[[], Answer]) -> Answer:
        with self.scheduler.foreground():
            return compute()

    def _without_heads(self, model: nn.Module, off: Sequence[SwitchedHead]) -> Callable[[Callable[[], Answer]], Answer]:
        """Return the function that computes with some heads of a model set to zero, before all background work.

        Raises:
            UnknownNameError: the model has no such module; that a module has fewer heads is known when it runs.
        """
        if not off:
            return self._now
        changes: dict[str, dict[int, Change]] = {}
        for switched in off:
            changes.setdefault(switched.module, {})[switched.head] = "zero"
        intervention = intervene(model, changes)

        def now(compute: Callable[[], Answer]) -> Answer:
            with self.scheduler.foreground(), intervention:
                return compute()

        return now

    def _view(self, scene_number: int, request: HeadRequest) -> HeadView:
        group = self.scenes[scene_number].group(request.group)
        layer = check_index("layer", request.layer, len(group.layers))
        weights, adjustment = group.layers[layer], (request.temperature, request.top)
        if adjustment != (1.0, 0):
            weights = AdjustedWeights(weights.name, weights.weights, weights.sequence, *adjustment)
        return HeadView((scene_number, group.name, layer, adjustment), weights, request.head)

    def _run_for_task(self, number: int, task: str) -> LoadedRun:
        if not self.runs:
            raise ArgumentError("no run is open: what is shown cannot be changed")
        run = self.runs[check_index("run", number, len(self.runs))]
        if run.task != task:
            raise ArgumentError(f"{run.name} is for the task {run.task}, not for {task}")
        return run

    def _check_length(self, tokens: int, name: str = "text") -> None:
        if tokens > self.longest:
            raise DataError(
                f"the {name} has {tokens:,} tokens, more than the {self.longest:,} that are read at once here"
            )


def _weights_of_prompt(generation: StepwiseGeneration, view: HeadRequest | None) -> list[float] | None:
    """Return the weights of BOS and the prompt in the last row, for the head that the page shows."""
    if view is None or len(generation.prompt) + len(generation.tokens) > MAX_TOKENS_WITH_WEIGHTS:
        return None
    weights = _last_row(build_scene(generation.map()), view)
    return None if weights is None else weights[: len(generation.prompt) + 1]


def _last_step_weights(decoding: StepwiseDecoding, view: HeadRequest | None, *, has_ended: bool) -> list[float] | None:
    """Return the weights of the step that wrote the last token, for the head that the page shows."""
    if view is None or max(len(decoding.source.ids), len(decoding.tokens)) > MAX_TOKENS_WITH_WEIGHTS:
        return None
    return _last_row(build_scene(decoding.map(with_eos=has_ended)), view)


def _last_row(scene: Scene, view: HeadRequest) -> list[float] | None:
    groups = {group.name: group for group in scene.all_groups}
    # gradients wait until all is written
    group = groups.get(view.group) or groups.get(view.group.partition(".")[0])
    if group is None or (view.head or 0) >= group.shape[0]:
        return None
    weights = group.layers[min(view.layer, len(group.layers) - 1)].rows(torch.tensor([group.shape[1] - 1]))[
        :, 0
    ]  # (H, Tk)
    return (weights.mean(0) if view.head is None else weights[view.head]).tolist()

"""The page's requests, validated on arrival, and their answers as plain numbers and dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from torch import nn

from attent.attention.capture.intervene import Change, intervene
from attent.errors import ArgumentError, DataError, check_index, refuse
from attent.explorer.loaded_run import LoadedRun
from attent.explorer.scheduler import LRUCache, SceneStore, Scheduler
from attent.explorer.tiles import HeadView, MapRegion, TilePyramid, sampled_head_statistics
from attent.search.settings import SearchSettings
from attent.tasks.classification.classifier import scene_of_example
from attent.tasks.classification.task import ClassificationTask
from attent.tasks.fill_mask.examples import has_blank
from attent.tasks.fill_mask.task import MaskedLMTask
from attent.tasks.text_generation.stepwise import StepwiseGeneration
from attent.tasks.text_generation.task import TextGenerationTask
from attent.tasks.translation.stepwise import DecodingStep, StepwiseDecoding
from attent.tasks.translation.task import TranslationTask
from attent.text.tokenizer import EOS, prompt_of
from attent.views.build_scene import build_scene
from attent.views.pages.payload import rgb
from attent.views.scene import Scene

# Maximum tokens of a text.
MAX_TOKENS = 32_768
# Maximum tokens of a text for which weights are sent with each token, and gradients computed at the end.
MAX_TOKENS_WITH_WEIGHTS = 512
# Number of guesses for a blank, and of classes.
BEST = 5
# Maximum characters of a title.
MAX_TITLE = 200
# Calls a function when its turn comes.
Now = Callable[[Callable[[], Any]], Any]
# The page says "mean" for the mean over heads, which is None in Python.
Head = Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(lambda head: None if head == "mean" else head)]
Index = Annotated[int, Field(ge=0)]
# Maximum characters of a module's path, and of heads switched off together.
MAX_PATH, MAX_HEADS = 500, 4096


class RequestModel(BaseModel):
    """Base class of all requests; refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HeadRequest(RequestModel):
    """A head of a layer of a group, or the mean over its heads.

    Args:
        group: the group's name.
        layer: the layer, from 0.
        head: the head, from 0, or "mean".
    """

    group: str
    layer: Index
    head: Head


class RowRequest(HeadRequest):
    """The weights of one query."""

    query: Index


class ColumnRequest(HeadRequest):
    """The weights on one key."""

    key: Index


class TileRequest(HeadRequest):
    """A tile at a level of the map."""

    level: Index
    y: Index
    x: Index
    reduction: Literal["mean", "max"] = Field(default="mean", alias="how")


class SummaryRequest(RequestModel):
    """The statistics of the heads of a group."""

    group: str


class SwitchedHead(RequestModel):
    """A head that is switched off, identified by the path of its module."""

    module: str = Field(max_length=MAX_PATH)
    head: Annotated[int, Field(ge=0, lt=MAX_HEADS)]


class RunRequest(RequestModel):
    """A request to the run with a given number, with some heads switched off."""

    run: Index = 0
    off: tuple[SwitchedHead, ...] = Field(default=(), max_length=MAX_HEADS)


class TextRequest(RunRequest):
    """A text for a run."""

    text: str


class ExampleRequest(RunRequest):
    """A request about an example that was loaded with a run."""

    row: Index


class TranslateRequest(TextRequest):
    """A text to translate, or to continue.

    Args:
        prefix: ids of the tokens with which the translation or continuation begins.
        more: text that follows the prefix.
        beam: the beam size; above 1, the translation arrives only when complete. Continuations are always greedy.
        best: the number of candidates reported at each step.
        view: the head whose weights are sent with each token; none unless given. JSON calls it "where".
    """

    prefix: tuple[Index, ...] = ()
    more: str = ""
    beam: int = Field(default=1, ge=1, le=16)
    best: int = Field(default=8, ge=1, le=50)
    view: HeadRequest | None = Field(default=None, alias="where")


class Explorer:
    """Answers the page's requests, one computation at a time.

    Args:
        runs: the loaded runs, shown side by side.
        scenes: scenes to show from the start.
        text: the initial text in the text box.
        longest: the maximum number of tokens of a text.
    """

    def __init__(
        self, runs: Sequence[LoadedRun] = (), scenes: Sequence[Scene] = (), text: str = "", *, longest: int = MAX_TOKENS
    ) -> None:
        self.runs, self.text, self.longest = tuple(runs), text, longest
        self.scheduler = Scheduler()
        self.tiles = TilePyramid(self.scheduler, LRUCache())
        self.scenes = SceneStore(scenes)

    def close(self) -> None:
        """Stop computing; see `Scheduler.close`."""
        self.scheduler.close()

    def describe(self) -> dict[str, Any]:
        """Return a description of the runs and scenes, ready for JSON."""
        return {
            "runs": [run.describe() for run in self.runs],
            "scenes": list(range(len(self.scenes.fixed))),
            "text": self.text,
            "longest": self.longest,
        }

    def region(self, scene_number: int, request: HeadRequest) -> MapRegion:
        """Return the requested row, column or tile, or the whole map, pooled, if none is requested."""
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
        """Return the statistics of each head of a group, and the largest sampling step of their queries."""
        group = self.scenes[scene_number].group(group_name)
        compute = partial(sampled_head_statistics, is_self_attention=group.is_self_attention)
        heads, steps = zip(*(self._now(partial(compute, layer)) for layer in group.layers), strict=True)
        return {"figures": list(heads), "every": max(steps)}

    def pixels(self, scene_number: int) -> bytes:
        """Return a scene's picture as the red, green and blue bytes of each pixel.

        Raises:
            ArgumentError: the scene has no picture.
        """
        picture = self.scenes[scene_number].picture
        if picture is None:
            raise ArgumentError(f"view {scene_number} has no picture")
        return rgb(picture).tobytes()

    def translate(self, request: TranslateRequest) -> Iterator[dict[str, Any]]:
        """Iterate over the events of a translation: the source, each token, and the scene of the whole translation.

        Raises:
            ArgumentError: the run does not translate, or the text or the prefix is not valid for it.
            DataError: the text is too long.
        """
        translator = self._run_for_task(request.run, TranslationTask.name).tool
        now = self._without_heads(translator.model, request.off)
        source = translator.read(request.text)
        tokenizer = translator.target_tokenizer
        more = tokenizer.encode(request.more)[len(prompt_of(tokenizer)) :] if request.more else []
        decoding = StepwiseDecoding(translator, source, [*request.prefix, *more], top_k=request.best)
        source_length = len(decoding.source.ids)
        self._check_length(source_length)
        self._check_length(len(decoding.prefix), "prefix")
        yield {"kind": "start", "source": decoding.labels, "unknown": decoding.unknown_pieces}
        if source_length > MAX_TOKENS_WITH_WEIGHTS and (reading := now(decoding.encoder_maps)):
            # the encoder's maps can be explored while a long text is still being translated
            scene = build_scene(reading, title=source.text[:MAX_TITLE])
            yield {"kind": "scene", "scene": self.scenes.add(scene, request.run)}
        if request.beam > 1:
            settings = SearchSettings(beam=request.beam)
            tokens = now(lambda: translator.search(source, settings, prefixes=decoding.prefix)[0].tokens)
            decoding = StepwiseDecoding(
                translator, source, tokens, top_k=request.best, forced_length=len(decoding.prefix)
            )
        steps = iter(decoding)
        while (step := now(lambda: next(steps, None))) is not None:
            map_of = partial(decoding.map, with_eos=step.chosen.token == EOS)
            length = max(source_length, len(decoding.tokens))
            yield _token_event(step, now(partial(_last_row, map_of, length, request.view)))
        length = max(source_length, len(decoding.tokens))
        scene = self._add_scene(request.run, now, decoding.map, length, source.text)
        text = tokenizer.decode(decoding.tokens)
        yield {"kind": "end", "scene": scene, "text": text, "tokens": decoding.tokens}

    def generate(self, request: TranslateRequest) -> Iterator[dict[str, Any]]:
        """Iterate over the events of a greedy continuation: BOS and the prompt, each token, and the scene of the whole.

        The last event contains the whole text and the number of its scene.

        Raises:
            ArgumentError, DataError: the run does not generate text, or the text or prefix is invalid for it or too
                long.
        """
        generator = self._run_for_task(request.run, TextGenerationTask.name).tool
        now = self._without_heads(generator.model, request.off)
        more = generator.encode(request.more) if request.more else []
        generation = StepwiseGeneration(generator, request.text, [*request.prefix, *more], top_k=request.best)
        prompt_length = len(generation.prompt)
        self._check_length(prompt_length + len(generation.prefix))
        yield {"kind": "start", "source": generation.labels, "unknown": []}
        steps = iter(generation)
        while (step := now(lambda: next(steps, None))) is not None:
            length = prompt_length + len(generation.tokens)
            weights = now(partial(_last_row, generation.last_maps, length, request.view))
            # the weights on the prompt only, and what comes before it
            yield _token_event(step, None if weights is None else weights[: len(generation.labels)])
        text, length = request.text + generation.continuation, prompt_length + len(generation.tokens)
        scene = self._add_scene(request.run, now, generation.map, length, text)
        yield {"kind": "end", "scene": scene, "text": text, "tokens": generation.tokens}

    def fill(self, request: TextRequest) -> dict[str, Any]:
        """Return guesses for the blanks of a text, if it has any, and the number of its scene.

        Raises:
            ArgumentError, DataError: the run does not fill blanks, or the text is empty or too long.
        """
        filler = self._run_for_task(request.run, MaskedLMTask.name).tool
        now = self._without_heads(filler.model, request.off)
        length = len(filler.tokenizer.encode(request.text))
        self._check_length(length)
        blanks = now(lambda: filler.fill(request.text, BEST)) if has_blank(request.text) else []
        return {
            "scene": self._add_scene(request.run, now, partial(filler.map, request.text), length, request.text),
            "blanks": [
                {"place": blank.position, "guesses": [asdict(guess) for guess in blank.guesses]} for blank in blanks
            ],
            "unknown": filler.unknown_words(request.text),
        }

    def classify(self, request: TextRequest | ExampleRequest) -> dict[str, Any]:
        """Return the most probable classes of a text or an example, and the number of its scene.

        Raises:
            ArgumentError, DataError: the run does not classify, there is no such example, or the text is empty or too
                long.
        """
        run = self._run_for_task(request.run, ClassificationTask.name)
        classifier = run.tool
        now = self._without_heads(classifier.model, request.off)
        if isinstance(request, TextRequest):
            if classifier.tokenizer is None:
                # a picture classifier would interpret the text as the name of a file on this machine
                raise ArgumentError(f"{run.name} reads {run.input_kind}: choose one of its examples")
            refuse((not request.text.strip(), "there is nothing to classify: the text is empty"), kind=DataError)
            length = len(classifier.tokenizer.encode(request.text))
            self._check_length(length)
            data, title = classifier.data([request.text]), request.text[:MAX_TITLE]
            gradients = length <= MAX_TOKENS_WITH_WEIGHTS
        else:
            data, title, gradients = run.example(request.row), f"example {request.row}", True
        prediction = now(lambda: classifier.classify(data, best=BEST)[0])
        scene = now(lambda: scene_of_example(classifier, data, title=title, gradients=gradients))
        best = [
            {"label": label, "probability": probability}
            for label, probability in zip(prediction.labels, prediction.probabilities, strict=True)
        ]
        return {"scene": self.scenes.add(scene, request.run), "best": best}

    def _add_scene(self, run: int, now: Now, map_of: Callable[..., Any], length: int, title: str) -> int:
        """Store the scene of a text of the given length, with gradients if it is short; return the scene's number."""
        gradients = length <= MAX_TOKENS_WITH_WEIGHTS
        scene = now(lambda: build_scene(map_of(gradients=gradients), title=title[:MAX_TITLE]))
        return self.scenes.add(scene, run)

    def _now(self, compute: Callable[[], Any]) -> Any:
        with self.scheduler.foreground():
            return compute()

    def _without_heads(self, model: nn.Module, off: Sequence[SwitchedHead]) -> Now:
        """Return a function that runs a computation in the foreground with the outputs of some heads set to zero.

        Raises:
            UnknownNameError: the model has no such module; head numbers are checked only when the module runs.
        """
        if not off:
            return self._now
        changes: dict[str, dict[int, Change]] = {}
        for switched in off:
            changes.setdefault(switched.module, {})[switched.head] = "zero"
        intervention = intervene(model, changes)

        def now(compute: Callable[[], Any]) -> Any:
            with self.scheduler.foreground(), intervention:
                return compute()

        return now

    def _view(self, scene_number: int, request: HeadRequest) -> HeadView:
        group = self.scenes[scene_number].group(request.group)
        layer = check_index("layer", request.layer, len(group.layers))
        return HeadView((scene_number, group.name, layer), group.layers[layer], request.head)

    def _run_for_task(self, number: int, task: str) -> LoadedRun:
        refuse((not self.runs, "no run is open: only the given maps can be viewed"))
        run = self.runs[check_index("run", number, len(self.runs))]
        refuse((run.task != task, f"{run.name} is for the task {run.task}, not for {task}"))
        return run

    def _check_length(self, tokens: int, name: str = "text") -> None:
        if tokens > self.longest:
            raise DataError(f"the {name} has {tokens:,} tokens, more than the limit of {self.longest:,}")


def _token_event(step: DecodingStep, weights: list[float] | None) -> dict[str, Any]:
    return {
        "kind": "token",
        "said": asdict(step.chosen),
        "best": [asdict(candidate) for candidate in step.candidates],
        "forced": step.is_forced,
        "weights": weights,
    }


def _last_row(map_of: Callable[[], Any], length: int, view: HeadRequest | None) -> list[float] | None:
    """Return the weights of the last query for the head shown on the page.

    None if the page shows no head, the maps have no such head, or the length in tokens is too large.
    """
    if view is None or length > MAX_TOKENS_WITH_WEIGHTS:
        return None
    groups = {group.name: group for group in build_scene(map_of()).all_groups}
    # gradients are computed once all tokens are written
    group = groups.get(view.group) or groups.get(view.group.partition(".")[0])
    if group is None or (view.head or 0) >= group.shape[0]:
        return None
    layer, last_query = group.layers[min(view.layer, len(group.layers) - 1)], torch.tensor([group.shape[1] - 1])
    weights = layer.rows(last_query)[:, 0]  # (H, Tk)
    return (weights.mean(0) if view.head is None else weights[view.head]).tolist()

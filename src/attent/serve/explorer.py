"""What an open page asks for and how it is answered, in plain numbers and dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

import torch

from attent.data.tokenizer import EOS
from attent.data.typed import as_known
from attent.decoding.settings import SearchSettings
from attent.decoding.stepwise import Growing, Grown
from attent.errors import ArgumentError, DataError
from attent.serve import queries
from attent.serve.loaded_run import Opened
from attent.serve.lru_cache import Kept
from attent.serve.requests import Column, Example, Row, Text, TileOf, Translate, Where
from attent.serve.scenes import Scenes
from attent.serve.scheduler import Turns
from attent.serve.tiles import Part, Sheet, Tiles
from attent.views.build_scene import arranged
from attent.views.pages.payload import rgb
from attent.views.run_scene import scene_of_example
from attent.views.scene import Scene

# Tokens that a text may have to be read at once; and that one may have for its weights to be told while a translation grows.
LONGEST, TOLD = 32_768, 512
BEST = 5
TITLE = 200
Answer = TypeVar("Answer")


class Explorer:
    """Answers what pages ask; one computes at a time.

    Args:
        runs: those that can be asked, beside each other.
        scenes: what is shown from the start.
        text: what stands in the box for a text at first.
        longest: the most tokens that a text may have.
    """

    def __init__(self, runs: Sequence[Opened] = (), scenes: Sequence[Scene] = (), text: str = "", *, longest: int = LONGEST) -> None:
        self.runs, self.text, self.longest = tuple(runs), text, longest
        self.turns = Turns()
        self.tiles = Tiles(self.turns, Kept())
        self.scenes = Scenes(scenes)

    def close(self, seconds: float | None = None) -> bool:
        """Compute nothing more; see `Turns.close`."""
        return self.turns.close(seconds)

    def describe(self) -> dict[str, Any]:
        """What there is, for JSON."""
        scenes = list(range(len(self.scenes.fixed)))
        return {"runs": [run.describe() for run in self.runs], "scenes": scenes, "text": self.text, "longest": self.longest}

    def row(self, scene: int, asked: Row) -> Part:
        """How a query looks."""
        sheet = self._sheet(scene, asked)
        return self._now(lambda: queries.row(sheet, _within(asked.query, sheet.shape[0], "query")))

    def column(self, scene: int, asked: Column) -> Part:
        """Who looks at a key."""
        sheet = self._sheet(scene, asked)
        return self._now(lambda: queries.column(sheet, _within(asked.key, sheet.shape[1], "key")))

    def tile(self, scene: int, asked: TileOf) -> Part:
        """A tile of a level."""
        return self.tiles.tile(self._sheet(scene, asked), asked.level, asked.y, asked.x, asked.how)

    def thumbnail(self, scene: int, asked: Where) -> Part:
        """All of a map in small."""
        sheet = self._sheet(scene, asked)
        return self._now(lambda: queries.thumbnail(sheet))

    def summary(self, scene: int, name: str) -> dict[str, Any]:
        """The figures of each layer and head of a group, and of how many queries one was computed, at the most."""
        group = self.scenes[scene].group(name)
        found = [self._now(lambda layer=layer: queries.figures(layer, itself=group.itself)) for layer in group.layers]
        return {"figures": [layer.heads for layer in found], "every": max(layer.every for layer in found)}

    def pixels(self, scene: int) -> bytes:
        """The picture of a scene, red, green and blue of each pixel.

        Raises:
            ArgumentError: it has none.
        """
        picture = self.scenes[scene].picture
        if picture is None:
            raise ArgumentError(f"view {scene} has no picture")
        return rgb(picture).tobytes()

    def translate(self, asked: Translate) -> Iterator[dict[str, Any]]:
        """A translation as it grows: what is read, then each token, then the scene of all of it.

        Raises:
            ArgumentError: the run does not translate, or the text or the prefix cannot be taken.
            DataError: the text is too long.
        """
        translator = self._run(asked.run, "translate").tool
        asked = asked.model_copy(update={"text": as_known(asked.text, translator.source_tokenizer)})
        more = translator.target_tokenizer.encode(asked.more) if asked.more else []
        growing = Growing(translator, asked.text, [*asked.prefix, *more], best=asked.best)
        self._fits(len(growing.sources))
        self._fits(len(growing.prefix), "prefix")
        yield {"kind": "start", "source": growing.labels, "unknown": growing.unknown}
        if len(growing.sources) > TOLD and (reading := self._now(growing.reading)):
            # a long text is looked at long before its translation ends
            yield {"kind": "scene", "scene": self.scenes.add(arranged(reading, title=asked.text[:TITLE]), asked.run)}
        if asked.beam > 1:
            found = self._now(lambda: _searched(translator, asked, growing.prefix))
            growing = Growing(translator, asked.text, found, best=asked.best, asked=len(growing.prefix))
        steps = iter(growing)
        while (grown := self._now(lambda: next(steps, None))) is not None:
            told = self._now(partial(_told, growing, asked.where, ended=grown.said.token == EOS))
            yield {"kind": "token", **_token(grown), "weights": told}
        scene = self._now(lambda: arranged(growing.map(), title=asked.text[:TITLE]))
        text = translator.target_tokenizer.decode(growing.tokens)
        yield {"kind": "end", "scene": self.scenes.add(scene, asked.run), "text": text, "tokens": growing.tokens}

    def fill(self, asked: Text) -> dict[str, Any]:
        """The words that may stand in a text's blanks, and the scene of it.

        Raises:
            ArgumentError, DataError: the run does not fill blanks, there is none, or the text is too long.
        """
        filler = self._run(asked.run, "fill-mask").tool
        self._fits(len(filler.tokenizer.encode(asked.text)))
        found = self._now(lambda: filler.fill(asked.text, BEST))
        scene = self._now(lambda: arranged(filler.map(asked.text), title=asked.text[:TITLE]))
        blanks = [{"place": blank.place, "guesses": [asdict(guess) for guess in blank.guesses]} for blank in found]
        return {"scene": self.scenes.add(scene, asked.run), "blanks": blanks, "unknown": filler.unknown(asked.text)}

    def classify(self, asked: Text | Example) -> dict[str, Any]:
        """The likeliest classes of a text or of an example, and the scene of it.

        Raises:
            ArgumentError, DataError: the run tells no classes, there is no such example, or the text is empty or too long.
        """
        run = self._run(asked.run, "classify")
        classifier = run.tool
        if isinstance(asked, Text):
            if classifier.tokenizer is None:
                # where pictures are read a text would be the name of a file of this machine
                raise ArgumentError(f"{run.name} reads {classifier.inputs.inputs.kind}: choose one of its examples")
            if not asked.text.strip():
                raise DataError("there is nothing to classify: the text is empty")
            self._fits(len(classifier.tokenizer.encode(asked.text)))
            data, title = classifier.data([asked.text]), asked.text[:TITLE]
        else:
            data, title = run.example(asked.row), f"example {asked.row}"
        told = self._now(lambda: classifier.classify(data, best=BEST)[0])
        scene = self._now(lambda: scene_of_example(classifier, data, title=title))
        best = [{"label": label, "probability": share} for label, share in zip(told.labels, told.probabilities, strict=True)]
        return {"scene": self.scenes.add(scene, asked.run), "best": best}

    def _now(self, compute: Callable[[], Answer]) -> Answer:
        with self.turns.now():
            return compute()

    def _sheet(self, scene: int, asked: Where) -> Sheet:
        group = self.scenes[scene].group(asked.group)
        layer = _within(asked.layer, len(group.layers), "layer")
        return Sheet((scene, group.name, layer), group.layers[layer], asked.head)

    def _run(self, number: int, task: str) -> Opened:
        if not self.runs:
            raise ArgumentError("no run is open: what is shown cannot be changed")
        run = self.runs[_within(number, len(self.runs), "run")]
        if run.task != task:
            raise ArgumentError(f"{run.name} is for the task {run.task}, not for {task}")
        return run

    def _fits(self, tokens: int, what: str = "text") -> None:
        if tokens > self.longest:
            raise DataError(f"the {what} has {tokens:,} tokens, more than the {self.longest:,} that are read at once here")


def _within(number: int, count: int, what: str) -> int:
    if number >= count:
        raise ArgumentError(f"{what} must be from 0 to {count - 1}, got {number}")
    return number


def _token(grown: Grown) -> dict[str, Any]:
    return {"said": asdict(grown.said), "best": [asdict(candidate) for candidate in grown.best], "forced": grown.forced}


def _told(growing: Growing, where: Where | None, *, ended: bool) -> list[float] | None:
    """How the step that wrote the last token looked, where the page says which weights it shows."""
    if where is None or max(len(growing.sources), len(growing.tokens)) > TOLD:
        return None
    group = next((group for group in arranged(growing.map(ended=ended)).groups if group.name == where.group), None)
    if group is None or (where.head or 0) >= group.shape[0]:
        return None
    weights = group.layers[min(where.layer, len(group.layers) - 1)].rows(torch.tensor([group.shape[1] - 1]))[:, 0]  # (H, Tk)
    return (weights.mean(0) if where.head is None else weights[where.head]).tolist()


def _searched(translator: Any, asked: Translate, prefix: Sequence[int]) -> tuple[int, ...]:
    """The tokens that a beam search finds behind the prefix, with it."""
    return translator.search([asked.text], SearchSettings(beam=asked.beam), prefixes=[prefix])[0][0].tokens

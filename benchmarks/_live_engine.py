"""The engine of live pages beside the Python models: both compute with the weights that a page has."""

from __future__ import annotations

import base64
import copy
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from attent.formats.html import payload
from attent.runs.folder import Run
from attent.text.tokenizer import BOS, EOS
from attent.views.build_scene import build_scene
from attent.views.pages.page import bundle

# Answers questions of JSON, given the bundle of the engine.
ANSWER = Path(__file__).with_name("_live_engine.js").read_text(encoding="utf-8")


def node(script: str, data: Any) -> Any:
    """Run a script under node, with data as JSON on its standard input, and return what it writes, also JSON."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "script.cjs"
        file.write_text(script, encoding="utf-8")
        result = subprocess.run(
            ["node", file], input=json.dumps(data), capture_output=True, encoding="utf-8", check=False
        )
    assert not result.returncode, result.stderr[-2000:]
    return json.loads(result.stdout, object_hook=_array)


def _array(value: dict[str, Any]) -> Any:
    """Return numbers in base64 as an array, and other objects as they are."""
    if value.keys() != {"float32", "shape"}:
        return value
    return np.frombuffer(base64.b64decode(value["float32"]), "<f4").reshape(value["shape"])


def stored(description: dict[str, Any], weights: np.ndarray) -> dict[str, torch.Tensor]:
    """Return the tensors of a page's weights, read as engine/parameters.js describes them."""
    tensors = {}
    if all(each["kind"] == "float16" for each in description["tensors"]):
        weights = weights.reshape(2, -1)[::-1].T.ravel()
    for each in description["tensors"]:
        shape, begin = tuple(each["shape"]), each["offset"]
        count = int(np.prod(shape))
        if each["kind"] == "float16":
            numbers = np.frombuffer(weights.tobytes(), "<f2", count, begin).astype(np.float32)
        else:
            codes = np.frombuffer(weights.tobytes(), "<i1", count, begin).reshape(-1, shape[-1]).astype(np.float32)
            numbers = codes * np.frombuffer(weights.tobytes(), "<f4", len(codes), begin + count)[:, None]
        tensors[each["name"]] = torch.from_numpy(numbers.reshape(shape).copy())
    return tensors


class Pair:
    """A run with the weights that its page has, and the page's engine, which answers questions under node.

    Args:
        run: the run; it is not changed.
        quantization: as for `attent export`.
    """

    def __init__(self, run: Run, quantization: str | None = None) -> None:
        self.description, packs = payload(run, "run", quantization)
        self.weights = packs["weights"]
        self.run = Run(run.config, copy.deepcopy(run.model).eval(), run.tokenizers, run.files)
        with torch.no_grad():
            self.run.model.load_state_dict(stored(self.description, self.weights))

    def ask(self, *questions: dict[str, Any]) -> list[Any]:
        """Answer questions, see _live_engine.js."""
        data = {
            "description": self.description,
            "questions": questions,
            "weights": base64.b64encode(self.weights.tobytes()).decode(),
        }
        return node(bundle("engine/engine") + ANSWER, data)


def randomize(model: nn.Module, seed: int = 3) -> nn.Module:
    """Enlarge the weights of an untrained model and shift its vectors, so that rounding chooses no token."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(1.5 * parameter if parameter.dim() > 1 else parameter + 0.2 * torch.randn_like(parameter))
    return model.eval()


class Comparison(NamedTuple):
    """What differs between a page and Python: whether tokens are the same, and the largest differences."""

    is_same: bool
    logits: float
    maps: float


def translated(translator: Any, text: str, answer: dict[str, Any]) -> Comparison:
    """Compare a page's translation with Python's greedy search, and its numbers with Python's for the same tokens."""
    assert "steps" in answer, answer
    tokens, source = [step["token"] for step in answer["steps"]], translator.read(text)
    is_same = tokens == [*translator.search(text)[0].tokens, EOS]
    logits = np.array([step["logits"] for step in answer["steps"]])
    with torch.no_grad():
        memory = translator.encode(source.ids)
        features = translator.model.decode(memory, torch.tensor([[BOS, *tokens[:-1]]]))
        expected = translator.model.output(features)[0].numpy()
    columns = ("",) * len(source.ids)
    maps = translator.map_of_tokens(source.ids, tokens, columns, ("",) * len(tokens))
    return Comparison(
        is_same, float(np.abs(logits - expected).max()), difference(answer["maps"], maps and build_scene(maps))
    )


def difference(maps: dict[str, Any], scene: Any) -> float:
    """Return the largest difference between the maps of a page, as `shown` names them, and those of a scene."""
    known = {
        f"{group.name}.{number}": layer
        for group in (scene.groups if scene else ())
        for number, layer in enumerate(group.layers)
    }
    assert known.keys() == maps.keys(), (known.keys(), maps.keys())
    largest = 0.0
    for name, layer in known.items():
        weights = layer.rows(torch.arange(layer.shape[1])).numpy()
        largest = max(largest, float(np.abs(np.array(maps[name]) - weights).max()))
    return largest

"""The engine of live pages beside the Python models: both compute with the weights that a page has, each in its own way."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from attent.formats.html import payload
from attent.runs.folder import Run
from attent.views.pages.page import bundle

# Answers one question of JSON a line; `write` collects the steps of a translation, with all weights after the last.
ANSWER = r"""
const numbers = (matrix) => matrix.list();
const shown = (engine, state) => Object.fromEntries(engine.maps(state).flatMap(({ name, layers }) => layers.map((heads, layer) => [`${name}.${layer}`, heads.map(numbers)])));
const typed = (input) => (input.values ? { ...input, values: Float32Array.from(input.values) } : input);
function answerOf(engine, { call, input, options = {} }) {
  try {
    if (call === "write") {
      const [first, ...rest] = engine.write(typed(input), options);
      const steps = rest.filter(({ kind }) => kind === "token");
      const plain = steps.map(({ token, text, probability, logits, candidates, forced }) => ({ token, text, probability, logits: [...logits], candidates, forced }));
      return { labels: first.labels, unknown: first.unknown, ids: first.ids, steps: plain, maps: shown(engine, first.state) };
    }
    if (call === "parts") {
      const [first, ...rest] = engine.write(typed(input.text), options);
      const parts = engine.parts(first.state, ...input.head);
      return { ...Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, numbers(part)])), row: [...engine.row(first.state, ...input.head)], count: rest.length };
    }
    const { state, ...answer } = call === "groups" ? { groups: engine.groups, normalizers: engine.normalizers } : engine[call](typed(input), options);
    if (answer.logits) answer.logits = [...answer.logits];
    if (answer.blanks) answer.blanks = answer.blanks.map((blank) => ({ ...blank, logits: [...blank.logits] }));
    return state ? { ...answer, maps: shown(engine, state) } : Array.isArray(input) ? answer : answer;
  } catch (error) {
    return { error: error.message };
  }
}
"""
NODE = r"""
const { readFileSync } = require("fs");
const { description, questions, weights } = JSON.parse(readFileSync(0, "utf8"));
const engine = module_engine_engine.open({ description, weights: Uint8Array.from(Buffer.from(weights, "base64")) });
process.stdout.write(JSON.stringify(questions.map((question) => answerOf(engine, question)), (_, value) => (value === -Infinity ? "-Infinity" : value)));
"""


def node(script: str, data: Any) -> Any:
    """Run a script under node, with data as JSON on its standard input, and return what it writes, also JSON."""
    path = shutil.which("node")
    if path is None:
        pytest.skip("node is not on the path")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "script.cjs"
        file.write_text(script, encoding="utf-8")
        result = subprocess.run(
            [path, file], input=json.dumps(data), capture_output=True, encoding="utf-8", check=False
        )
    assert not result.returncode, result.stderr[-2000:]
    return json.loads(result.stdout)


def stored(description: dict[str, Any], weights: np.ndarray) -> dict[str, torch.Tensor]:
    """Return the tensors of a page's weights, read as docs/formats.md describes them."""
    tensors = {}
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
        """Answer questions, see ANSWER."""
        import base64

        data = {
            "description": self.description,
            "questions": questions,
            "weights": base64.b64encode(self.weights.tobytes()).decode(),
        }
        return node(bundle("engine/engine") + ANSWER + NODE, data)


def randomize(model: nn.Module, seed: int = 3) -> nn.Module:
    """Enlarge the weights of an untrained model and shift its vectors, so that no bias is 0 and no token as likely as another."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(1.5 * parameter if parameter.dim() > 1 else parameter + 0.2 * torch.randn_like(parameter))
    return model.eval()

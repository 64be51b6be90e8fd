import json
from pathlib import Path

import numpy as np
import pytest
import torch

from attent.formats.exporting import export
from attent.formats.onnx import GRAPH
from attent.models.language_model import LanguageModel
from attent.models.settings import DecoderSettings
from attent.runs.folder import RunConfig, RunWriter
from attent.text.tokenizers import learn

onnxruntime = pytest.importorskip("onnxruntime", reason="no onnxruntime")
pytest.importorskip("onnx", reason="no onnx")
pytest.importorskip("onnxscript", reason="no onnxscript")
LINES = ["the dog slept .", "the cat was happy , so it slept ."]


def saved(folder: Path, **settings: object) -> LanguageModel:
    tokenizer = learn("word", LINES * 3)
    values = {"layers": 2, "width": 12, "feed_forward": 7, "heads": 2, "norm": "pre"} | settings
    model = LanguageModel(DecoderSettings.model_validate(values), tokenizer.size, tokenizer.size).eval()
    corpus = {"lines": {"train": "a.txt"}}
    with RunWriter(folder) as run:
        run.finish(
            RunConfig(task="text-generation", tokenizers={"text": "word"}, model=model.settings, corpus=corpus),
            model,
            tokenizer,
        )
    return model


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"position": "rotary"}, {"position": "learned", "maximum_length": 13}], ids=str)
def test_the_graph_has_the_logits_of_the_model(settings: dict[str, object], tmp_path: Path) -> None:
    model = saved(tmp_path / "run", **settings)
    folder = export(tmp_path / "run", "onnx")
    manifest = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    assert manifest["longest"] == model.longest
    engine = onnxruntime.InferenceSession(str(folder / GRAPH), providers=["CPUExecutionProvider"])
    for shape in ((1, 1), (5, 11), (2, 13)):
        tokens = torch.randint(0, model.to_logits.out_features, shape)
        with torch.no_grad():
            expected = model.output(model(tokens))
        (actual,) = engine.run(["logits"], {"tokens": tokens.numpy()})
        np.testing.assert_allclose(actual, expected.numpy(), atol=1e-4)

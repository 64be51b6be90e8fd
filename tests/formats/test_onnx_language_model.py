import json
from pathlib import Path

import numpy as np
import pytest
import torch

from attent.errors import ArgumentError, RunError
from attent.formats.onnx import GRAPH, export
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
    folder, difference = export(tmp_path / "run")
    assert folder == tmp_path / "run" / "export" / "onnx"
    assert difference < 1e-4
    manifest = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    assert manifest["comparison"]["largest difference"] == difference
    engine = onnxruntime.InferenceSession(str(folder / GRAPH), providers=["CPUExecutionProvider"])
    for shape in ((1, 1), (5, 11), (2, 13)):
        tokens = torch.randint(0, model.to_logits.out_features, shape)
        with torch.no_grad():
            expected = model.output(model(tokens))
        (actual,) = engine.run(["logits"], {"tokens": tokens.numpy()})
        np.testing.assert_allclose(actual, expected.numpy(), atol=1e-4)


def test_what_is_no_export_is_left_alone(tmp_path: Path) -> None:
    saved(tmp_path / "run", position="learned", maximum_length=5)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(RunError, match="already exists and is not an export"):
        export(tmp_path / "run", tmp_path / "notes")
    (tmp_path / "long.txt").write_text(LINES[1] + "\n", encoding="utf-8")
    with pytest.raises(ArgumentError, match="has 9 tokens, more than the 4 that this model can read"):
        export(tmp_path / "run", sample=tmp_path / "long.txt")

"""Our models under torch.compile, in a process of its own, as PyTorch cannot trace the tests' checker of shapes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from attent.ops.dense_attention import is_compiled

CODE = """
import torch
from attent.models.build import build
from attent.models.settings import DecoderSettings, EncoderSettings, RnnSettings, TransformerSettings
from torch._dynamo.testing import CompileCounterWithBackend

SIZES = {"width": 16, "heads": 4, "feed_forward": 32}
source, lengths, target = torch.randint(4, 29, (3, 9)), torch.tensor([9, 7, 4]), torch.randint(4, 29, (3, 8))
torch._dynamo.config.allow_rnn = True
def translate(model):
    return model.decode(model.encode(source, lengths), target)

for settings, call, layers in (
    (TransformerSettings(**SIZES, encoder_layers=2, decoder_layers=1), translate, 4),
    (EncoderSettings(**SIZES, layers=2), lambda model: model(source, lengths), 2),
    (DecoderSettings(**SIZES, layers=2), lambda model: model(source), 2),
    (RnnSettings(embedding_width=8, width=8), translate, 0),
):
    model, counter = build(settings, 29, 29), CompileCounterWithBackend("aot_eager")
    for is_training in (True, False):
        model.train(is_training)
        torch.compiler.reset()
        compiled = torch.compile(lambda: call(model), backend=counter, fullgraph=True)
        results = []
        for way in (compiled, lambda: call(model)):
            features = way()
            options = {"inputs": list(model.parameters()), "allow_unused": True, "materialize_grads": True}
            results.append([features, *torch.autograd.grad(features.square().sum(), **options)])
        if not is_training:
            # dropout draws other numbers in a graph
            torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
    names = [str(node.target) for graph in counter.graphs for node in graph.graph.nodes]
    assert names.count("attent.dense_attention.default") == 2 * layers, names
"""


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.skipif(not is_compiled(), reason="no extension: attent was installed without a compiler")
def test_a_model_is_one_graph_in_training_and_evaluation() -> None:
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert not result.returncode, result.stderr

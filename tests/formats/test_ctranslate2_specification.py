import pytest
import torch

from attent.formats.ctranslate2 import POSITIONS, max_length, specification, unsupported, vocabulary
from attent.runs.folder import Run, read
from attent.text.tokenizer import CharTokenizer, WordTokenizer
from attent.text.tokenizers import BpeTokenizer


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, None),
        ({"score": "vaswani", "normalizer": "softmax", "position": "none"}, None),
        ({"score": "additive"}, "it has no score 'additive', only scaled_dot and dot"),
        ({"normalizer": "sparsemax"}, "it has no normalizer 'sparsemax', only softmax"),
        ({"position": "alibi"}, "it has position 'alibi' only in decoders, not in encoders"),
        ({"position": "relative_bias"}, "one table for all layers, and in this model each layer has its own"),
        ({"kind": "rnn"}, "it does not support recurrent models"),
    ],
)
def test_what_cannot_be_expressed_has_a_reason(make_run, settings: dict[str, str], reason: str | None) -> None:
    result = unsupported(read(make_run(**settings)))
    assert result is None if reason is None else reason in str(result)


@pytest.mark.parametrize(("position", "limit"), [("sinusoidal", POSITIONS), ("learned", 40), ("rotary", None)])
def test_positions_end_where_their_table_does(make_run, position: str, limit: int | None) -> None:
    assert max_length(read(make_run(position=position, maximum_length=40))) == limit


def test_every_parameter_is_in_the_specification(run: Run) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    spec = specification(run)
    spec.validate()
    variables = spec.variables()
    attention = run.model.encoder.layers[1].self_attention
    projections = attention.query_projection, attention.key_projection, attention.value_projection
    rows = torch.cat([projection.weight for projection in projections])
    assert torch.equal(torch.from_numpy(variables["encoder/layer_1/self_attention/linear_0/weight"].numpy()), rows)
    table = torch.from_numpy(variables["decoder/position_encodings/encodings"].numpy())
    # PE(1, 0) = sin 1 and PE(1, 1) = cos 1: sines and cosines alternate
    torch.testing.assert_close(table[1, :2], torch.tensor([0.8415, 0.5403]), atol=1e-4, rtol=0)
    numbers = sum(
        variables[name].numpy().size for name in variables if name.endswith(("weight", "bias", "gamma", "beta"))
    )
    # the output is the target's embedding, which stands in the specification twice
    assert (
        numbers == sum(parameter.numel() for parameter in run.model.parameters()) + run.model.to_logits.weight.numel()
    )


def test_every_id_has_a_name_of_its_own() -> None:
    assert vocabulary(CharTokenizer("ab ")) == ["<pad>", "<unk>", "<s>", "</s>", "a", "b", " "]
    assert vocabulary(WordTokenizer([" a", "a", "<5>", "\n"]))[4:] == [" a", "a", "<5>", "\n"]

    class Same(CharTokenizer):
        def decode(self, ids: object) -> str:
            return super().decode(ids).replace("b", "a")

    assert vocabulary(Same("ab"))[4:] == ["a", "<5>"]
    names = vocabulary(BpeTokenizer.learn(["so many words as there are, so many pieces"] * 9, 300))
    assert len(set(names)) == len(names)
    assert " so" in names

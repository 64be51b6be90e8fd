import pytest
import torch
from torch import Tensor, nn

from attent.attention.capture.watch import watch
from attent.attention.normalizers.sparsemax import Sparsemax
from attent.models import transformer_packing as compiled
from attent.models.transformer import Transformer
from attent.models.transformer_settings import TransformerSettings
from attent.ops import native

pytestmark = pytest.mark.skipif(native.library() is None, reason="no extension: attent was installed without a compiler")
SMALL = {"encoder_layers": 2, "decoder_layers": 2, "width": 36, "feed_forward": 67, "heads": 3, "maximum_length": 101}
SERVED = [
    {"position": "sinusoidal", "norm": "post", "activation": "gelu"},
    {"position": "learned", "norm": "pre", "share_embeddings": "none", "key_value_heads": 1},
    {"position": "rotary", "norm": "pre", "heads": 1},
    {"position": "none", "score": "dot"},
]
LENGTHS = torch.tensor([7, 2, 31, 1, 13, 100, 31, 0, 5])


def make(variant: dict[str, object]) -> Transformer:
    return Transformer(TransformerSettings.model_validate(SMALL | variant), 13, 11).eval()


def some_source(lengths: Tensor = LENGTHS) -> Tensor:
    return torch.randint(4, 13, (len(lengths), int(lengths.max())))


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("variant", SERVED, ids=str)
def test_the_memory_and_steps_are_those_of_the_modules(variant: dict[str, object], level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if level > native.simd_level():
        pytest.skip("this processor has no such registers")
    monkeypatch.setattr(native, "simd_level", lambda: level)
    model, source, tokens = make(variant), some_source(), torch.randint(2, 11, (8, 5))
    with torch.no_grad():
        expected = model.encode(source, LENGTHS)
        some = expected.select(LENGTHS.nonzero()[:, 0])
        features = model.decode(some, tokens)
    with torch.inference_mode():
        assert model.rowwise
        memory = model.encode(source, LENGTHS)
        for found, exact, length in zip(memory.features, expected.features, LENGTHS.tolist(), strict=True):
            torch.testing.assert_close(found[:length], exact[:length], atol=1e-5, rtol=1e-5)
            assert not found[length:].any()
        state = model.start(some)
        for token, exact in zip(tokens.unbind(1), features.unbind(1), strict=True):
            found, state = model.step(state, token)
            torch.testing.assert_close(found, exact, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", SERVED, ids=str)
@torch.inference_mode()
def test_each_row_is_computed_alone_on_any_number_of_threads(variant: dict[str, object]) -> None:
    model, lengths = make(variant), torch.randint(1, 40, (67,))
    source, threads = some_source(lengths), torch.get_num_threads()
    tokens = torch.randint(2, 11, (2, 67))

    def found(rows: slice) -> tuple[Tensor, Tensor]:
        memory = model.encode(source[rows], lengths[rows])
        _, state = model.step(model.start(memory), tokens[0, rows])
        return memory.features, model.output(model.step(state, tokens[1, rows])[0])

    whole = found(slice(None))
    try:
        for rows, count in ((slice(None), 3), (slice(5, 6), 1), (slice(9, 66), 2)):
            torch.set_num_threads(count)
            assert all(torch.equal(part, every[rows]) for part, every in zip(found(rows), whole, strict=True))
    finally:
        torch.set_num_threads(threads)


@torch.inference_mode()
def test_what_was_exchanged_or_is_listened_to_goes_the_general_way() -> None:
    model = make({})
    assert compiled.serves(model.encoder)
    with watch(model):
        assert not compiled.serves(model.encoder)
    heard = model.encoder.layers[1].feed_forward.register_forward_hook(lambda *_: None)
    assert not compiled.serves(model.encoder)
    heard.remove()
    assert compiled.serves(model.encoder)
    model.decoder.layers[0].cross_attention.normaliser = Sparsemax()
    assert not compiled.serves(model.decoder)
    model.encoder.layers[0].feed_forward.widen = nn.Sequential(nn.Linear(36, 67))
    assert not compiled.serves(model.encoder)
    assert not model.rowwise


def test_without_inference_mode_gradients_may_be_wanted() -> None:
    model = make({})
    with torch.no_grad():
        assert not compiled.serves(model.encoder)
    with torch.inference_mode():
        assert not compiled.serves(model.train().encoder)
        assert not compiled.serves(model.eval().bfloat16().encoder)


def test_weights_that_were_learnt_since_are_used() -> None:
    model, source = make({"position": "rotary"}), some_source()
    before = model.state_dict()
    with torch.inference_mode():
        model.encode(source, LENGTHS)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        expected = model.encode(source, LENGTHS).features
    assert before.keys() == model.state_dict().keys()
    with torch.inference_mode():
        torch.testing.assert_close(model.encode(source, LENGTHS).features[2, :31], expected[2, :31], atol=1e-5, rtol=1e-5)

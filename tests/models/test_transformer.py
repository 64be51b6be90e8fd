import pytest
import torch

from attent.attention.capture.watch import watch
from attent.errors import ArgumentError, ShapeError
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer

SMALL = {"encoder_layers": 2, "decoder_layers": 2, "width": 8, "feed_forward": 11, "heads": 4, "maximum_length": 17}
# Pairwise: every position kind, each norm, whole and grouped heads, each way of sharing embeddings.
VARIANTS = [
    {"position": "sinusoidal", "norm": "post", "share_embeddings": "target"},
    {"position": "sinusoidal", "norm": "pre", "key_value_heads": 2, "output_bias": True, "share_embeddings": "none"},
    {"position": "learned", "norm": "post", "key_value_heads": 1},
    {"position": "learned", "norm": "pre", "activation": "gelu"},
    {"position": "rotary", "norm": "post", "key_value_heads": 2},
    {"position": "rotary", "norm": "pre"},
    {"position": "alibi", "norm": "post"},
    {"position": "alibi", "norm": "pre", "key_value_heads": 2},
    {"position": "relative_bias", "norm": "post", "key_value_heads": 2},
    {"position": "relative_bias", "norm": "pre"},
    {"position": "none", "norm": "post", "score": "cosine"},
    {"position": "none", "norm": "pre", "normalizer": "sparsemax"},
    {"position": "sinusoidal", "score": "additive", "key_value_heads": 2},
]
NAMES = ["-".join(map(str, variant.values())) for variant in VARIANTS]


def make(variant: dict[str, object], source_size: int = 13, target_size: int = 11) -> Transformer:
    return Transformer(TransformerSettings.model_validate(SMALL | variant), source_size, target_size).eval()


def some_source() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(4, 13, (3, 7)), torch.tensor([7, 2, 5])


@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
@torch.no_grad()
def test_all_steps_at_once_equal_one_step_after_another(variant: dict[str, object]) -> None:
    model, (source, lengths), tokens = make(variant), some_source(), torch.randint(2, 11, (3, 5))
    memory = model.encode(source, lengths)
    whole = model.decode(memory, tokens)
    state, steps = model.start(memory), []
    for token in tokens.unbind(1):
        features, state = model.step(state, token)
        steps.append(features)
    assert whole.shape == (3, 5, 8)
    torch.testing.assert_close(torch.stack(steps, 1), whole)
    assert model.output(whole).shape == (3, 5, 11)


@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
@torch.no_grad()
def test_the_attention_of_a_layer_is_that_of_decode(variant: dict[str, object]) -> None:
    model, (source, lengths), tokens = make(variant), some_source(), torch.randint(2, 11, (3, 5))
    memory = model.encode(source, lengths)
    with watch(model) as maps:
        model.decode(memory, tokens)
    assert model.source_attention_layers == 2
    for layer in range(2):
        weights = model.source_attention(memory, tokens, layer).dense()
        assert torch.equal(weights, maps[f"decoder.layers.{layer}.cross_attention"].dense())


@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
@torch.no_grad()
def test_units_are_needed_one_after_another(variant: dict[str, object], weights_are_needed_within) -> None:
    weights_are_needed_within(make(variant), *some_source(), torch.randint(2, 11, (3, 5)))


@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
@torch.no_grad()
def test_neighbours_and_padding_do_not_matter(variant: dict[str, object]) -> None:
    model, (source, lengths), tokens = make(variant), some_source(), torch.randint(2, 11, (3, 5))
    whole = model.decode(model.encode(source, lengths), tokens)
    for row, length in enumerate(lengths.tolist()):
        single = model.decode(
            model.encode(source[row : row + 1, :length], lengths[row : row + 1]), tokens[row : row + 1]
        )
        torch.testing.assert_close(single[0], whole[row])


@torch.no_grad()
def test_a_feature_knows_nothing_of_later_tokens() -> None:
    model, (source, lengths), tokens = make({}), some_source(), torch.randint(2, 11, (3, 5))
    memory = model.encode(source, lengths)
    second = tokens.clone()
    second[:, 3:] = 4
    torch.testing.assert_close(model.decode(memory, second)[:, :3], model.decode(memory, tokens)[:, :3])


@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "relative_bias"])
@torch.no_grad()
def test_a_selected_state_goes_on_as_its_rows(position: str) -> None:
    model, (source, lengths) = make({"position": position, "key_value_heads": 2}), some_source()
    rows = torch.tensor([2, 0, 2])
    state = model.start(model.encode(source, lengths))
    assert state.select(rows).length == 0
    _, state = model.step(state, torch.tensor([2, 2, 2]))
    features, _ = model.step(state, torch.tensor([5, 6, 7]))
    chosen, _ = model.step(state.select(rows), torch.tensor([7, 5, 7]))
    torch.testing.assert_close(chosen, features[rows])


@torch.no_grad()
def test_reordering_moves_what_is_written_and_leaves_the_source() -> None:
    model, (source, lengths) = make({"key_value_heads": 2}), some_source()
    same = torch.tensor([0, 0, 2, 2])
    _, state = model.step(model.start(model.encode(source, lengths)).select(same), torch.tensor([2, 3, 4, 5]))
    rows, tokens = torch.tensor([1, 0, 3, 3]), torch.tensor([7, 5, 7, 6])
    moved = state.reorder(rows)
    assert all(first is second for first, second in zip(moved.source, state.source, strict=True))
    assert torch.equal(model.step(moved, tokens)[0], model.step(state.select(rows), tokens)[0])
    assert not torch.allclose(model.step(moved, tokens)[0], model.step(state, tokens)[0])


@pytest.mark.parametrize(("shared", "matrices"), [("none", 3), ("target", 2), ("all", 1)])
def test_shared_embeddings_are_one_matrix(shared: str, matrices: int) -> None:
    model = make({"share_embeddings": shared}, 11, 11)
    weights = (model.source_embedding.tokens.weight, model.target_embedding.tokens.weight, model.to_logits.weight)
    assert len({id(weight) for weight in weights}) == matrices
    assert torch.equal(*weights[1:]) is (shared != "none")


def test_one_vocabulary_cannot_have_two_sizes() -> None:
    with pytest.raises(ArgumentError, match="needs one vocabulary, got 13 source and 11 target"):
        make({"share_embeddings": "all"})


def test_lengths_must_be_one_a_row() -> None:
    with pytest.raises(ShapeError, match=r"lengths \(B,\), got \(3, 7\) and \(2,\)"):
        make({}).encode(torch.ones(3, 7, dtype=torch.long), torch.tensor([7, 2]))


def test_every_parameter_learns() -> None:
    model, (source, lengths) = make({"share_embeddings": "none", "position": "learned"}), some_source()
    model.output(model.decode(model.encode(source, lengths), torch.randint(2, 11, (3, 5)))).logsumexp(
        -1
    ).sum().backward()
    # Shifting all scores of a query alike changes no weight, so the bias of the keys has no gradient to speak of.
    frozen_names = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert frozen_names == []


@torch.no_grad()
def test_maps_leave_by_name_in_the_order_of_computation() -> None:
    model, (source, lengths) = make({}), some_source()
    with watch(model) as captured:
        model.decode(model.encode(source, lengths), torch.randint(2, 11, (3, 5)))
    assert [(name, weights.shape[2:]) for name, weights in captured.items()] == [
        ("encoder.layers.0.self_attention", (7, 7)),
        ("encoder.layers.1.self_attention", (7, 7)),
        ("decoder.layers.0.self_attention", (5, 5)),
        ("decoder.layers.0.cross_attention", (5, 7)),
        ("decoder.layers.1.self_attention", (5, 5)),
        ("decoder.layers.1.cross_attention", (5, 7)),
    ]

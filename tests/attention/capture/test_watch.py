from __future__ import annotations

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.attend import attend
from attent.attention.capture import watch as module
from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.multihead import MultiHeadAttention
from attent.errors import ArgumentError, AttentError, UnseenError


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = MultiHeadAttention(6, 3), MultiHeadAttention(6, 2, normalizer="sigmoid", dropout=0.5)

    def forward(self, features: Tensor) -> Tensor:
        return self.second(self.first(self.first(features)), features[:, :3])


def test_every_call_is_collected_in_order_by_its_path() -> None:
    model = Twice()
    with watch(model) as captured:
        for call in (0, 1):
            assert len(captured) == 3 * call
            model(torch.randn(2, 5, 6))
        with pytest.raises(ValueError, match="features must be"):
            model(torch.randn(2, 5, 7))
    assert list(captured)[:3] == ["first", "first#2", "second"]
    assert captured["second"].shape == (2, 2, 5, 3)
    assert captured.concatenated("first").shape == (2, 3, 20, 5)
    model.first(torch.randn(2, 5, 6))
    assert len(captured) == 6
    assert not module.is_watched()
    name: Any = "bert-base"
    with pytest.raises(ArgumentError, match=r"^watch takes a model, a torch\.nn\.Module, got str$"):
        watch(name)


def test_modules_have_the_paths_that_pytorch_gives_them() -> None:
    shared = nn.Linear(2, 2)
    transformer = nn.Transformer(4, 2, 1, 1, 5, batch_first=True)
    model = nn.ModuleDict({"one": nn.Sequential(shared, nn.Sequential(shared)), "two": transformer, "three": shared})
    model.register_module("none", None)
    assert list(module.module_paths(model).items()) == [(item, path) for path, item in model.named_modules()]


def test_maps_are_detached_and_the_model_is_as_before() -> None:
    model, features = Twice().eval(), torch.randn(2, 5, 6, requires_grad=True)
    expected = model(features)
    with watch(model) as captured:
        output = model(features)
    assert torch.equal(output, expected)
    output.sum().backward()
    assert features.grad is not None
    assert not any(weights.dense().requires_grad for weights in captured.values())


def test_only_the_watched_part_is_seen_by_each_watcher() -> None:
    model, second = Twice(), MultiHeadAttention(6, 1)
    with watch(model) as outer, watch(model.first) as inner:
        model(second(torch.randn(2, 5, 6)))
        assert module.is_watched()
    assert list(outer) == ["first", "first#2", "second"]
    assert list(inner) == ["", "#2"]
    assert isinstance(inner["#2"], AttentionMap)
    assert not module.is_watched()
    assert outer == outer
    assert outer != inner
    assert len({outer, inner, outer}) == 2


def test_threads_watch_one_model_at_the_same_time() -> None:
    model, original = Twice().eval(), F.scaled_dot_product_attention
    features = torch.randn(4, 2, 5, 6)
    are_all, outer = threading.Barrier(4), watch(model)

    def run(number: int) -> list[list[torch.Tensor]]:
        results = []
        for _ in range(5):
            are_all.wait(30)
            with watch(model, own_thread=True) as captured:
                are_all.wait(30)
                model(features[number])
                # nobody ends to watch before all have run
                are_all.wait(30)
            assert list(captured) == ["first", "first#2", "second"]
            results.append([weights.dense() for weights in captured.values()])
        return results

    with outer, ThreadPoolExecutor(4) as pool:
        results = [*pool.map(run, range(4))]
    assert len(outer) == 4 * 5 * 3
    for number, of_thread in enumerate(results):
        with watch(model) as captured:
            model(features[number])
        expected = [weights.dense() for weights in captured.values()]
        assert all(torch.equal(*pair) for of_call in of_thread for pair in zip(of_call, expected, strict=True))
    assert not module.is_watched()
    assert F.scaled_dot_product_attention is original


def test_a_thread_that_watches_alone_does_not_concern_others() -> None:
    model, features = Twice(), torch.randn(2, 5, 6)
    with watch(model, own_thread=True) as captured, ThreadPoolExecutor(1) as pool:
        assert module.is_watched() and not pool.submit(module.is_watched).result()
        pool.submit(model, features).result()
        assert not captured
        model(features)
    assert list(captured) == ["first", "first#2", "second"]


class Foreign(nn.Module):
    """A user's own: PyTorch's function, its module, and ours as functions."""

    def __init__(self) -> None:
        super().__init__()
        self.projection, self.attention = nn.Linear(6, 18), nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True)

    def forward(self, features: Tensor) -> Tensor:
        query, key, value = self.projection(features).unflatten(-1, (3, 3, 2)).permute(2, 0, 3, 1, 4)
        features = (
            F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.7).transpose(1, 2).flatten(2)
        )
        features = self.attention(features, features, features, need_weights=False)[0]
        return attend(features, features, features, score="cosine")


def test_what_is_not_ours_is_seen_too_and_unchanged() -> None:
    model, features = Foreign(), torch.randn(2, 5, 6)
    torch.manual_seed(3)
    expected = model(features)
    torch.manual_seed(3)
    with watch(model) as captured, watch(model.attention) as inner:
        output = model(features)
    assert torch.equal(output, expected)
    shapes = {"": (2, 3, 5, 5), "attention": (2, 2, 5, 5), "#2": (2, 5, 5)}
    assert {path: weights.shape for path, weights in captured.items()} == shapes
    assert list(inner) == [""]
    query, key, _ = model.projection(features).unflatten(-1, (3, 3, 2)).permute(2, 0, 3, 1, 4)
    scores = (query @ key.mT * 0.7).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    torch.testing.assert_close(captured[""].dense(), scores.softmax(-1).detach())


@pytest.mark.parametrize("training", [True, False])
def test_a_whole_transformer_of_pytorch(training: bool) -> None:
    model = nn.Transformer(8, 2, 2, 2, 13, batch_first=True).train(training)
    source, target = torch.randn(3, 5, 8), torch.randn(3, 4, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    torch.manual_seed(3)
    with torch.set_grad_enabled(training):
        expected = model(source, target, tgt_mask=mask, tgt_is_causal=True)
    torch.manual_seed(3)
    with torch.set_grad_enabled(training), watch(model) as captured:
        assert torch.equal(model(source, target, tgt_mask=mask, tgt_is_causal=True), expected)
    assert list(captured) == [
        *("encoder.layers.0.self_attn", "encoder.layers.1.self_attn"),
        *(f"decoder.layers.{layer}.{kind}" for layer in (0, 1) for kind in ("self_attn", "multihead_attn")),
    ]
    assert captured["decoder.layers.0.multihead_attn"].shape == (3, 2, 4, 5)
    assert not captured["decoder.layers.1.self_attn"].dense().triu(1).any()
    torch.testing.assert_close(captured["encoder.layers.1.self_attn"].dense().sum(-1), torch.ones(3, 2, 5))


class Cached(nn.Module):
    """Keys in a buffer of fixed length, as a static cache has them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 2, 8, 4))

    def forward(self, features: Tensor, step: int) -> Tensor:
        self.keys[:, :, step] = features
        return F.scaled_dot_product_attention(
            features[:, :, None], self.keys[:, :, : step + 1], self.keys[:, :, : step + 1]
        )


def test_maps_keep_what_the_call_saw_though_a_cache_is_written_over() -> None:
    model, expected = Cached(), []
    with watch(model) as captured:
        for step in range(3):
            features = torch.randn(1, 2, 4)
            model(features, step)
            expected.append((features[:, :, None] @ model.keys[:, :, : step + 1].mT / 2).softmax(-1))
    model.keys.fill_(7.0)
    for weights, reference in zip(captured.values(), expected, strict=True):
        torch.testing.assert_close(weights.dense(), reference)
    joined = captured.concatenated("")
    assert joined.shape == (1, 2, 3, 3)
    torch.testing.assert_close(joined[:, :, 1, :2], expected[1][:, :, 0])
    assert not joined.dense().triu(1).any()


def test_inference_mode() -> None:
    model, features = Foreign().eval(), torch.randn(2, 5, 6)
    with torch.no_grad(), watch(model) as captured:
        model(features)
    with torch.inference_mode(), watch(model) as same:
        model(features)
    assert list(same) == list(captured)
    assert all(torch.equal(weights.dense(), captured[path].dense()) for path, weights in same.items())


class Marked(torch.autograd.Function):
    """The identity, whose place in the graph can be watched."""

    marks: ClassVar[list[weakref.ref[nn.Module]]] = []

    @staticmethod
    def forward(ctx: Any, features: Tensor) -> Tensor:
        ctx.mark = nn.Identity()
        Marked.marks.append(weakref.ref(ctx.mark))
        return features * 1


@pytest.mark.parametrize("need_weights", [True, False])
def test_the_graph_is_not_kept_alive(need_weights: bool) -> None:
    model = nn.MultiheadAttention(6, 2, batch_first=True)
    features = Marked.apply(torch.randn(2, 5, 6, requires_grad=True))
    with watch(model) as captured:
        output = model(features, features, features, need_weights=need_weights)
    assert Marked.marks[-1]() is not None
    del output, features
    assert Marked.marks[-1]() is None
    assert captured[""].dense().shape == (2, 2, 5, 5)


def test_gradients_keep_the_graph_until_the_last() -> None:
    model = MultiHeadAttention(6, 2)
    features = Marked.apply(torch.randn(2, 5, 6, requires_grad=True))
    with watch(model, gradients=True) as captured:
        output = model(features)
    expected = captured.gradients(output.sum())[""].dense()
    gradients = captured.last_gradients(output.sum())
    del output, features
    assert Marked.marks[-1]() is None
    torch.testing.assert_close(gradients[""].dense(), expected)


def test_a_missing_path_names_the_nearest() -> None:
    model = Foreign()
    with watch(model) as captured:
        with pytest.raises(UnseenError, match=r"^no map of 'attention' among the 0 of Foreign; print\(seen\) lists"):
            captured["attention"]
        model(torch.randn(2, 5, 6))
    with pytest.raises(KeyError, match=r"^no map of 'atention' among the 3 of Foreign; did you mean") as caught:
        captured["atention"]
    assert isinstance(caught.value, AttentError)
    assert captured.get("other") is None
    assert "other" not in captured
    with pytest.raises(UnseenError):
        captured.concatenated("other")


def test_printed_it_says_what_was_seen_and_what_was_not() -> None:
    model = nn.ModuleDict({"one": Foreign(), "two": nn.MultiheadAttention(6, 2)})
    with watch(model) as captured:
        for _ in range(3):
            model["one"](torch.randn(2, 5, 6))
    *lines, unseen = str(captured).splitlines()
    assert lines[0] == "ModuleDict: 9 maps"
    assert lines[1] == "  one  (2, 3, 5, 5) … (2, 5, 5), 6 calls"
    assert lines[2:] == ["  one.attention  (2, 2, 5, 5) … (2, 2, 5, 5), 3 calls"]
    assert unseen.startswith("  not seen: two (MultiheadAttention): it was not called, or computes its weights by ")
    with watch(nn.Linear(2, 2)) as watched:
        pass
    assert str(watched) == "Linear: nothing was seen"


class Kept(nn.Module):
    """Attention through a function that it was given before anybody watched."""

    def __init__(self) -> None:
        super().__init__()
        self.function = F.scaled_dot_product_attention

    def forward(self, features: Tensor) -> Tensor:
        return self.function(features, features, features)


class SelfAttention(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(features, features, features)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_a_function_that_a_module_keeps_is_seen_but_torchscript_is_not() -> None:
    model, features = nn.Sequential(Kept()), torch.randn(2, 3, 5, 4)
    plain = model(features)
    with watch(model) as captured:
        assert torch.equal(model(features), plain)
    assert str(captured).splitlines() == ["Sequential: 1 map", "  0  (2, 3, 5, 5)"]
    torch.testing.assert_close(captured["0"].dense(), (features @ features.mT / 2).softmax(-1))
    assert model[0].function is F.scaled_dot_product_attention
    script = torch.jit.script(nn.Sequential(SelfAttention()))
    with watch(script) as captured:
        assert torch.equal(script(features), plain)
    assert str(captured).startswith("RecursiveScriptModule: nothing was seen\n  not seen: 0 (RecursiveScriptModule)")


def test_a_compiled_model_runs_unseen_and_says_so() -> None:
    model, features = Foreign().eval(), torch.randn(2, 5, 6)
    expected = model(features)
    compiled = torch.compile(model, backend="eager")
    with watch(compiled) as captured:
        torch.testing.assert_close(compiled(features), expected)
    assert len(captured) == 0
    message = "it is compiled: run it within torch.compiler.set_stance"
    assert f"not seen: _orig_mod.attention (MultiheadAttention): {message}" in str(captured)
    with watch(compiled) as captured, torch.compiler.set_stance("force_eager"):
        assert torch.equal(compiled(features), expected)
    assert list(captured) == ["_orig_mod", "_orig_mod.attention", "_orig_mod#2"]
    torch.compiler.reset()

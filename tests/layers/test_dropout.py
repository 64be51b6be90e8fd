import pytest
import torch

from attent.layers.dropout import Dropout
from attent.ops import native
from attent.ops.dropout import feature_mask

SHARE = 0.3


@pytest.fixture(autouse=True, params=["extension", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        monkeypatch.setattr(native, "library", lambda: None)
    elif native.library() is None:
        pytest.skip("no extension: attent was installed without a compiler")
    return request.param


def dropped(features: torch.Tensor, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return Dropout(SHARE)(features)


def test_a_share_is_zero_and_the_mean_stays_and_neighbours_are_independent() -> None:
    result = dropped(torch.ones(499, 1009), 1)
    zero = (result == 0).float().flatten()
    assert zero.mean().item() == pytest.approx(SHARE, abs=3e-3)
    assert result.mean().item() == pytest.approx(1.0, abs=5e-3)
    assert result.unique().tolist() == pytest.approx([0.0, 1 / (1 - SHARE)], rel=1e-4)
    for distance in (1, 2, 3, 4, 8):
        assert (zero[:-distance] * zero[distance:]).mean().item() == pytest.approx(SHARE**2, abs=3e-3)


def test_what_is_dropped_follows_from_torchs_seed_and_changes_from_call_to_call() -> None:
    features = torch.randn(7, 11, 13)
    assert torch.equal(dropped(features, 3), dropped(features, 3))
    assert not torch.equal(Dropout(SHARE)(features), Dropout(SHARE)(features))


def test_gradients_go_where_features_went() -> None:
    features = torch.randn(1709, 5, 7, requires_grad=True)
    result = dropped(features, 4)
    slope = torch.ones_like(result).requires_grad_()
    (gradient,) = torch.autograd.grad(result, features, slope, create_graph=True)
    torch.testing.assert_close(gradient * features, result)
    (second,) = torch.autograd.grad(gradient, slope, features)
    torch.testing.assert_close(second, result)


def test_many_gradients_at_once() -> None:
    features, slopes = torch.randn(3, 127, 131, requires_grad=True), torch.randn(3, 3, 127, 131)
    result = dropped(features, 4)
    expected = torch.stack([torch.autograd.grad(result, features, slope, retain_graph=True)[0] for slope in slopes])
    gradient = torch.autograd.grad(result, features, slopes, retain_graph=True, is_grads_batched=True)[0]
    torch.testing.assert_close(gradient, expected)
    assert not gradient.requires_grad
    mapped = torch.vmap(lambda slope: torch.autograd.grad(result, features, slope, retain_graph=True)[0])(slopes)
    torch.testing.assert_close(mapped, expected)


def test_many_features_stay_by_the_hash(way: str) -> None:
    if way == "plain":
        pytest.skip("PyTorch draws numbers of its own")
    features = torch.randn(3, 127, 131)
    result = dropped(features, 6)
    torch.manual_seed(6)
    saved = feature_mask(features, SHARE, int(torch.randint(2**31 - 1, ()))).keep_mask()[0, 0]
    torch.testing.assert_close(result, features * saved.view(3, 127, 131) / (1 - SHARE))


def test_the_type_and_the_shape_stay_and_without_anything_to_drop_the_features() -> None:
    for dtype in (torch.float64, torch.bfloat16):
        assert dropped(torch.ones(3, 5, dtype=dtype), 5).dtype == dtype
    assert dropped(torch.ones(1), 1).shape == (1,)
    assert dropped(torch.ones(0, 3), 1).shape == (0, 3)
    features = torch.randn(3, 5)
    assert Dropout(0.0)(features) is Dropout(SHARE).eval()(features) is features

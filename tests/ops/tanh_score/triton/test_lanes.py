from __future__ import annotations

import torch


def test_what_is_wide_is_told_and_kept_finite(device: torch.device) -> None:
    from attent.ops.tanh_score.triton import lanes

    features = torch.zeros(1, 2, 3, 5, device=device)
    features[0, 1, 2, 3], features[0, 0, 1, 0], features[0, 0, 0, 0] = 1e3, float("nan"), lanes.WIDE
    laid = lanes.kernel_operand(features, 0.5)
    assert laid.narrow.tolist() == [[1, 0, 1], [1, 1, 0]]
    assert laid.powers[1].isfinite().all()
    assert laid.transposed.shape == (2, 6, 3)
    assert not laid.transposed[:, 5].any()
    # a pair of them multiplied is finite too
    most = (0.5 * torch.tensor(4 * lanes.WIDE).exp() + 0.5).square()
    assert most.isfinite()


def test_every_head_has_its_direction(device: torch.device) -> None:
    from attent.ops.tanh_score.triton import lanes

    v = torch.arange(3.0, device=device)[None]
    torch.testing.assert_close(lanes.directions(v, 2), torch.tensor([[0.0, 1.0, 2.0, 0.0]] * 2, device=device))


def test_blocks_are_powers_of_two_within_bounds(device: torch.device) -> None:
    from attent.ops.tanh_score.triton import lanes

    assert [lanes.power_of_two(size, 16, 64) for size in (1, 16, 17, 64, 65, 0)] == [16, 16, 32, 64, 64, 16]

import pytest
import torch
from torch import Tensor

from attent.attention.attend import attend
from attent.attention.positions.rotary import Rotary
from attent.ops.decode_attention import keep, looks

# (B, H, G, T, S, D)
SHAPES = [(1, 1, 1, 1, 1, 1), (5, 3, 3, 7, 11, 5), (3, 6, 2, 37, 2, 33), (7, 4, 1, 17, 7, 48), (67, 4, 4, 19, 67, 32)]


def some(shape: tuple[int, ...], *, one_row: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, heads, groups, length, rows, width = shape
    query, memory = torch.randn(batch, heads, width), torch.randn(length, rows, 2 * groups * width)
    held = torch.randint(rows, (batch, 1 if one_row else length))
    return query, memory, held, torch.randint(1, length + 1, (batch,))


def expected(query: Tensor, memory: Tensor, rows: Tensor, counts: Tensor, groups: int, scale: float) -> Tensor:
    found = []
    for one, held, count in zip(query.double(), rows, counts.tolist(), strict=True):
        here = memory.double()[torch.arange(count), held[:count]].unflatten(-1, (2, groups, -1))  # (T, 2, G, D)
        key, value = here.permute(1, 2, 0, 3)[:, None].unbind()
        found.append(attend(one[None, :, None] * scale, key, value, score="dot", implementation="formula")[0, :, 0])
    return torch.stack(found)


@pytest.mark.parametrize("one_row", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_the_formula(shape: tuple[int, ...], one_row: bool) -> None:
    query, memory, rows, counts = some(shape, one_row=one_row)
    for apart in (query, torch.randn(shape[0], shape[1] + 2, shape[5])[:, 1:-1].copy_(query)):
        found = looks(apart, memory, rows, counts, shape[2], 0.7)
        torch.testing.assert_close(found.double(), expected(query, memory, rows, counts, shape[2], 0.7), atol=2e-6, rtol=2e-6)


def test_any_order_of_the_axes_in_memory() -> None:
    query, memory, rows, counts = some(SHAPES[2], one_row=True)
    turned = memory.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(looks(query, turned, rows, counts, 2, 1.0), looks(query, memory, rows, counts, 2, 1.0))


def test_scores_far_apart_do_not_overflow() -> None:
    query, memory, rows, counts = some(SHAPES[1], one_row=False)
    torch.testing.assert_close(
        looks(query * 99, memory, rows, counts, 3, 9.0).double(), expected(query * 99, memory, rows, counts, 3, 9.0), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize(("batch", "heads", "groups", "width"), [(1, 1, 1, 2), (5, 3, 1, 6), (37, 4, 2, 34), (8, 4, 4, 32)])
def test_keys_stay_turned_and_values_as_they_are(batch: int, heads: int, groups: int, width: int) -> None:
    projected = torch.randn(batch, (heads + 2 * groups) * width)
    query, key, value = projected.clone().split((heads * width, groups * width, groups * width), 1)
    rotary, positions, to = Rotary(halves=True), torch.tensor([[7]]), torch.empty(batch, 2 * groups * width)
    angle = rotary.turn(torch.ones(width).view(1, 1, 1, -1) * (torch.arange(width) < width // 2), positions)[0, 0, 0]
    found = keep(projected, heads, groups, to, (angle[: width // 2], angle[width // 2 :]))
    torch.testing.assert_close(found, rotary.turn(query.view(batch, heads, 1, width), positions)[:, :, 0])
    torch.testing.assert_close(to[:, : groups * width], rotary.turn(key.view(batch, groups, 1, width), positions).flatten(1))
    assert torch.equal(to[:, groups * width :], value)


def test_without_angles_nothing_is_turned() -> None:
    projected, to = torch.randn(3, 20), torch.empty(3, 10)
    assert torch.equal(keep(projected, 2, 1, to), projected[:, :10].view(3, 2, 5))
    assert torch.equal(to, projected[:, 10:])

import pytest
import torch
from torch import nn

from attent.layers.recurrent import NETWORKS, BidirectionalRecurrent, Recurrent, RecurrentStack, RecurrentState, ends
from attent.layers.ssru import SSRU

CELLS = ["gru", "lstm"]


def state_of(cell: str, rows: int = 3, width: int = 5) -> RecurrentState:
    return RecurrentState(torch.randn(rows, width), torch.randn(rows, width) if cell == "lstm" else None)


@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_all_steps_at_once_equal_single_steps(cell: str) -> None:
    stack, inputs, states = RecurrentStack(cell, 7, 5, layers=2), torch.randn(3, 4, 7), (state_of(cell), state_of(cell))
    for parameter in stack.parameters():
        nn.init.normal_(parameter)
    whole, after = stack(inputs, states)
    outputs = []
    for step in inputs.unbind(1):
        states = stack.step(stack.layers[0].gates(step[:, :2]) + stack.layers[0].share(2)(step[:, 2:]), states)
        outputs.append(states[-1].hidden)
    assert whole.shape == (3, 4, 5)
    torch.testing.assert_close(torch.stack(outputs, 1), whole)
    for actual, expected in zip(states, after, strict=True):
        torch.testing.assert_close(actual.hidden, expected.hidden)
        assert (actual.cell is None) is (cell == "gru")
        if actual.cell is not None:
            torch.testing.assert_close(actual.cell, expected.cell)


@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_padding_and_neighbours_do_not_matter_to_a_reader(cell: str) -> None:
    reader, features = BidirectionalRecurrent(cell, 7, 5, layers=2).eval(), torch.randn(3, 6, 7)
    lengths = torch.tensor([2, 5, 1])
    whole = reader(features, lengths)
    assert whole.shape == (3, 6, 10)
    for row, length in enumerate(lengths.tolist()):
        single = reader(features[row : row + 1, :length], lengths[row : row + 1])[0]
        torch.testing.assert_close(whole[row, :length], single)
        assert not whole[row, length:].any()
    features[0, 2:] = torch.nan
    assert torch.equal(reader(features, lengths), whole)
    assert not reader(features, torch.tensor([0, 5, 1]))[0].any()


@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_a_rows_bits_do_not_change_with_its_neighbours(cell: str) -> None:
    reader, features = BidirectionalRecurrent(cell, 7, 5, layers=2), torch.randn(8, 16, 7)
    short, long = torch.tensor([9, 1, 2, 3, 2, 1, 4, 5]), torch.tensor([9, 16, 15, 16, 16, 16, 13, 12])
    assert torch.equal(reader(features, short)[0], reader(features, long)[0])


@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_two_directions_are_what_pytorch_computes(cell: str) -> None:
    actual = BidirectionalRecurrent(cell, 7, 5, layers=2)
    reference = NETWORKS[cell](7, 5, 2, batch_first=True, bidirectional=True)
    for layer in range(2):
        for directions, suffix in ((actual.forwards, ""), (actual.backwards, "_reverse")):
            for name, parameter in directions[layer].network.named_parameters():
                reference.get_parameter(name.replace("l0", f"l{layer}") + suffix).copy_(parameter)
    features = torch.randn(3, 6, 7)
    torch.testing.assert_close(actual(features, torch.tensor([6, 6, 6])), reference(features)[0])


@torch.no_grad()
def test_each_direction_ends_where_it_has_read_everything() -> None:
    reader, features, lengths = BidirectionalRecurrent("lstm", 7, 5), torch.randn(2, 4, 7), torch.tensor([3, 4])
    last = ends(reader(features, lengths), lengths)
    ahead = []
    for direction, read in ((reader.forwards[0], features[:1, :3]), (reader.backwards[0], features[:1, :3].flip(1))):
        ahead.append(direction(read, direction.zero_state(read))[1].hidden[0])
    torch.testing.assert_close(last[0], torch.cat(ahead))


@torch.no_grad()
def test_weights_start_orthogonal_and_the_forget_gate_open() -> None:
    network = Recurrent("lstm", 7, 5).network
    for gate in network.weight_hh_l0.split(5):
        torch.testing.assert_close(gate @ gate.mT, torch.eye(5))
    assert torch.add(network.bias_ih_l0, network.bias_hh_l0).tolist() == [0.0] * 5 + [1.0] * 5 + [0.0] * 10


def test_a_simpler_unit_keeps_to_its_equations_in_parts_and_has_their_gradients() -> None:
    unit = SSRU(5).double()
    features = torch.randn(3, 7, 5, dtype=torch.float64, requires_grad=True)
    nn.init.normal_(unit.forget.bias)
    cell, expected = torch.zeros(3, 5, dtype=torch.float64), []
    for step in features.unbind(1):
        forget = 1 / (1 + torch.exp(-(step @ unit.forget.weight.T + unit.forget.bias)))
        cell = forget * cell + (1 - forget) * (step @ unit.value.weight.T)
        expected.append(cell.clamp(min=0))
    whole, last = unit(features)
    torch.testing.assert_close(whole, torch.stack(expected, 1))
    first, state = unit(features[:, :3])
    rest, end = unit(features[:, 3:], state)
    torch.testing.assert_close(torch.cat((first, rest), 1), whole)
    torch.testing.assert_close(end.select(torch.tensor([2, 0])).hidden, last.hidden[[2, 0]])
    assert torch.autograd.gradcheck(lambda given: unit(given)[0], (features.detach() * 3).requires_grad_())

import pytest
import torch

from attent.formats.onnx_tracing import gru, lstm, traced_all_steps, translations
from attent.layers.recurrent import Cell, Recurrent, RecurrentState


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_it_computes_what_the_layer_computes(cell: Cell) -> None:
    layer = Recurrent(cell, 3, 5)
    inputs, hidden = torch.randn(2, 7, 3), torch.randn(2, 5)
    state = RecurrentState(hidden, torch.randn(2, 5) if cell == "lstm" else None)
    with torch.no_grad():
        expected, after = layer(inputs, state)
        outputs, last, last_cell = traced_all_steps(layer.network, inputs, hidden, state.cell)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(last, after.hidden)
    if cell == "lstm":
        torch.testing.assert_close(last_cell, after.cell)


def test_shapes_are_known_without_numbers() -> None:
    inputs, hidden = torch.randn(2, 7, 3), torch.randn(2, 5)
    with torch.no_grad():
        torch.library.opcheck(
            gru, (inputs, hidden, *Recurrent("gru", 3, 5).network.parameters()), test_utils="test_faketensor"
        )
        torch.library.opcheck(
            lstm, (inputs, hidden, hidden, *Recurrent("lstm", 3, 5).network.parameters()), test_utils="test_faketensor"
        )


def test_onnx_has_both() -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    assert set(translations()) == {torch.ops.attent.traced_gru.default, torch.ops.attent.traced_lstm.default}

import pytest
import torch

from attent.models.encoder_decoder import EncoderDecoder, Memory
from attent.models.rnn_decoder import RnnState


def test_memory_selects_rows_in_order_and_twice() -> None:
    memory = Memory(torch.randn(3, 5, 2), torch.tensor([5, 1, 2]))
    chosen = memory.select(torch.tensor([2, 0, 2]))
    assert chosen.lengths.tolist() == [2, 5, 2]
    assert chosen.features.equal(memory.features[[2, 0, 2]])


def test_a_model_that_breaks_the_contract_cannot_be_made() -> None:
    class Half(EncoderDecoder[RnnState]):
        def output(self, features: torch.Tensor) -> torch.Tensor:
            return features

    with pytest.raises(TypeError, match=r"decode.*encode.*start.*step"):
        Half()  # pyright: ignore[reportAbstractUsage]

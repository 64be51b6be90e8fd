import numpy as np
import pytest
import torch

from attent.errors import DataError
from attent.tasks.text_generation.examples import RunningText, TextLines
from attent.text.batches import BatchSize, Sequences
from attent.text.tokenizer import BOS, EOS, PAD, SPECIALS

LENGTHS = (5, 1, 2, 13, 3, 7, 1, 11)
LINES = [[SPECIALS + 10 * row + column for column in range(length)] for row, length in enumerate(LENGTHS)]
TEXT = [token for line in LINES for token in (*line, EOS)]
ROWS = np.arange(len(LINES))
BOTH = pytest.mark.parametrize(
    "data", [TextLines(Sequences(LINES)), RunningText(Sequences(LINES), 3)], ids=["lines", "text"]
)


def test_a_line_begins_with_bos_and_ends_with_eos() -> None:
    batch = TextLines(Sequences(LINES)).batch(ROWS)
    assert batch.inputs.shape == batch.labels.shape == (8, 14)
    for line, inputs, labels in zip(LINES, batch.inputs.tolist(), batch.labels.tolist(), strict=True):
        assert labels == [*line, EOS, *[PAD] * (13 - len(line))]
        assert inputs[: len(line) + 1] == [BOS, *line]
    assert batch.tokens == int((batch.labels != PAD).sum()) == sum(LENGTHS) + 8
    assert batch.inputs.dtype == batch.labels.dtype == torch.int64


@pytest.mark.parametrize("window", [1, 5, len(TEXT)])
def test_windows_cover_the_text_exactly(window: int) -> None:
    data = RunningText(Sequences(LINES), window)
    assert len(data) == len(TEXT) // window
    batch = data.batch(np.arange(len(data)))
    assert batch.labels.flatten().tolist() == TEXT[: len(data) * window]
    assert batch.inputs[:, 0].tolist() == [BOS] * len(data)
    assert batch.inputs[:, 1:].equal(batch.labels[:, :-1])
    assert batch.tokens == data.token_count(np.arange(len(data))) == len(data) * window


def test_windows_of_an_epoch_begin_elsewhere_and_go_round() -> None:
    data = RunningText(Sequences(LINES), 17)
    rows = np.arange(len(data))
    shifts = list[int]()
    for epoch in range(7):
        actual = data.augmented(rows, 1, epoch).labels.flatten().tolist()
        (shift,) = (shift for shift in range(17) if (TEXT + TEXT)[shift : shift + len(actual)] == actual)
        # a row is a function of itself
        assert data.augmented(rows[1:], 1, epoch).labels.flatten().tolist() == actual[17:]
        shifts.append(shift)
    assert len(set(shifts)) > 2
    # the last window of a text that windows fill goes on with the beginning
    whole = RunningText(Sequences(LINES), len(TEXT) // 3)
    assert sorted(whole.augmented(np.arange(3), 1, 2).labels.flatten().tolist()) == sorted(TEXT)


def test_a_window_is_no_longer_than_the_text() -> None:
    data = RunningText(Sequences(LINES[:2]), 256)
    assert (data.window, len(data)) == (8, 1)
    empty = RunningText(Sequences([]), 256)
    assert len(empty) == len(empty.lengths()) == 0
    with pytest.raises(DataError, match="there is no window to make batches of"):
        empty.stream(BatchSize(2), 1)

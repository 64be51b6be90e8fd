"""The measurements of the benchmark why that need no training."""

import why


def test_the_gradient_100_steps_back_is_printed_for_every_layer() -> None:
    table, _ = why._compare_gradients(lambda line: None)
    row = table.rows[-1]
    assert row.keys() == {column.key for column in table.columns} and row["x"] == "100"
    # too small for the figure
    assert 0 < float(row["tanh RNN"]) < why.MIN_NORM
    assert 1e-3 < float(row["attention, causal"]) < 1e-2

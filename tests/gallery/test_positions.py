from __future__ import annotations

from gallery import positions


def test_the_dot_product_of_rows_depends_on_their_offset_alone() -> None:
    plate = positions.plate()
    matrix, _, products = (
        axes
        for axes in plate.drawing.axes
        if axes.get_ylabel() in {"position", "value", "PE(p)·PE(p + offset) / (E/2)"}
    )
    assert matrix.images[0].get_array().shape == (positions.LENGTH, positions.WIDTH)
    peaks = {float(line.get_xdata()[line.get_ydata().argmax()]) for line in products.lines[: len(positions.FROM)]}
    assert peaks == {0.0}
    assert "differs by at most " in plate.words.seen

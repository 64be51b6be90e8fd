from __future__ import annotations

import torch
from gallery.drawing import bar, label_of, matrix, sheet


def test_a_matrix_has_its_labels_numbers_and_frames() -> None:
    drawing = sheet(3, 3)
    axes = drawing.subplots()
    matrix(
        axes, torch.tensor([[0.25, 0.75], [1.0, 0.0]]), ["a", "b"], ["x", "longer"], "title", digits=2, marked=[(1, 0)]
    )
    assert [label.get_text() for label in axes.get_xticklabels()] == ["x", "longer"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert [text.get_text() for text in axes.texts] == ["0.25", "0.75", "1.00", "0.00"]
    (frame,) = axes.patches
    assert frame.get_xy() == (-0.5, 0.5)
    assert axes.images[0].get_clim() == (0, 1)


def test_the_scale_goes_from_nothing_to_all() -> None:
    drawing = sheet(2, 2)
    bar(drawing, drawing.subplots())
    assert drawing.axes[1].get_ylim() == (0, 1)


def test_spaces_are_seen_where_they_stand_alone() -> None:
    assert label_of(" ") == "␣"
    assert label_of("Ada Quill") == "Ada Quill"

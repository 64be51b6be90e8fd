"""Names of earlier versions that people may import are still there."""

from attent.decoding import classifier, fill_mask
from attent.decoding.fill_mask import AttendedPiece, MaskPrediction
from attent.evaluation import symmetrization


def test_classes_and_functions_have_their_former_names_too() -> None:
    assert fill_mask.Filler is fill_mask.FillMask
    assert classifier.Told is classifier.Prediction
    assert symmetrization.symmetrised is symmetrization.symmetrize


def test_a_prediction_is_read_by_its_former_method_too() -> None:
    prediction = MaskPrediction(0, (), (AttendedPiece("a", 0.25), AttendedPiece("b", 0.75)))
    assert prediction.most(1) == prediction.top_attended(1) == [AttendedPiece("b", 0.75)]

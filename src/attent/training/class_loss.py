"""The loss of a classifier."""

from __future__ import annotations

from torch import Tensor

from attent.data.labelled.examples import LabelledBatch
from attent.models.encoder import EncoderModel
from attent.ops.linear_cross_entropy import output_loss
from attent.training.autotune import Precision, autocast


def class_loss(model: EncoderModel, batch: LabelledBatch, label_smoothing: float, precision: Precision) -> tuple[Tensor, int]:
    """The cross entropy of the classes told from the vector in front, a mean over the batch in nats, and the model width E.

        y = softmax(W z⁰);  loss = −log y[class]

    z⁰ are the features of the place in front: Dosovitskiy et al. (2020), §3.1, eq. 4, arXiv 2010.11929.
    """
    batch = batch.within(model.longest)
    with autocast(batch.lengths.device, precision):
        features, layer = model(batch.sequence, batch.lengths)[:, 0], model.to_logits
        return output_loss(features, layer.weight, layer.bias, batch.classes, label_smoothing), features.shape[-1]

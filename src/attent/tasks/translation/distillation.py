"""Learning from translators: from their distributions (word level), or from their translations (sequence level)."""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.errors import ArgumentError
from attent.models.model import EncoderDecoder
from attent.runs.folder import tokenizers_as_text
from attent.search.settings import SearchSettings
from attent.tasks.translation.engine import BATCH
from attent.tasks.translation.translator import load_ensemble
from attent.text.batches import KEY_MULTIPLE, Batch, Sequences, batch_of
from attent.text.tokenizer import BOS, EOS, PAD, prompt_of
from attent.training.autotune import Precision, autocast
from attent.training.loss import translation_cross_entropy
from attent.training.settings import TrainingSettings

SEARCH = SearchSettings(beam=5)


class Distillation:
    """The loss of a translator that learns from others with the same vocabularies, in nats per token of the references.

    With the share w of the teachers, whose mean distribution is q, the word level is

        −(1 − w) ((1 − ε) log p(y) + ε/V Σ_v log p(v)) − w Σ_v q(v) log p(v)

    summed over the references' tokens. On the sequence level, the reference of each batch is replaced, with the
    probability w, by the teachers' translation with a beam of 5, which is computed once for each source.

    Source: Hinton et al. (2015), §2, arXiv 1503.02531; Kim & Rush (2016), §3, arXiv 1606.07947.

    Args:
        settings: the training settings, with at least one teacher.

    Raises:
        ArgumentError: the teachers have different vocabularies.
        RunError: a teacher cannot be loaded.
    """

    def __init__(self, settings: TrainingSettings) -> None:
        self._teacher, self._settings = load_ensemble(settings.teacher), settings
        self._translations = dict[tuple[int, ...], list[int]]()

    def __call__(self, model: EncoderDecoder, batch: Batch, label_smoothing: float, precision: Precision) -> Tensor:
        """Return the loss of a batch; see the class."""
        teacher, device = self._teacher, batch.source.device
        if teacher.device != device:
            teacher.model.to(device)
            teacher.device = device
        weight = self._settings.teacher_weight
        if batch.tokens and self._settings.teacher_level == "word":
            return self._word_loss(model, batch, label_smoothing, precision)
        if not batch.tokens or torch.rand(()) >= weight:
            return translation_cross_entropy(model, batch, label_smoothing, precision)
        translated = self._translated(batch)
        loss = translation_cross_entropy(model, translated, label_smoothing, precision)
        return loss * (translated.tokens / batch.tokens)

    def _word_loss(self, model: EncoderDecoder, batch: Batch, smoothing: float, precision: Precision) -> Tensor:
        weight, target = self._settings.teacher_weight, batch.target_out.flatten()
        rows = torch.nonzero_static(target != PAD, size=batch.tokens)[:, 0]

        def logits_of(predictor: EncoderDecoder) -> Tensor:
            features = predictor.decode(predictor.encode(batch.source, batch.source_lengths), batch.target_in)
            return predictor.output(features.flatten(0, 1)[rows]).float()

        with autocast(batch.source.device, precision):
            with torch.no_grad():
                target_probs = logits_of(self._teacher.model).softmax(-1)
                target_probs.mul_(weight).add_((1 - weight) * smoothing / target_probs.shape[1])
                target_probs.scatter_add_(
                    1, target[rows, None], target_probs.new_full((len(rows), 1), (1 - weight) * (1 - smoothing))
                )
            return F.cross_entropy(logits_of(model), target_probs)

    def _translated(self, batch: Batch) -> Batch:
        """Return a batch with the teachers' translations instead of the references."""
        lengths = batch.source_lengths.tolist()
        sources = [tuple(row[:length]) for row, length in zip(batch.source.tolist(), lengths, strict=True)]
        if new := [*{source: None for source in sources if source not in self._translations}]:
            prefixes = [prompt_of(self._teacher.target_tokenizer)] * len(new)
            n_best_lists = self._teacher.search_encoded(new, prefixes, SEARCH, BATCH)
            self._translations |= {
                source: [BOS, *best[0].tokens, EOS] for source, best in zip(new, n_best_lists, strict=True)
            }
        target = Sequences([self._translations[source] for source in sources])
        rows = torch.arange(len(sources)).numpy()
        result = batch_of(batch.source, batch.source_lengths.cpu().numpy(), target, rows, KEY_MULTIPLE)
        return result.to(batch.source.device)


def check_teachers(teachers: Iterable[str], path: Path | str) -> None:
    """Check that teachers have the vocabularies of a run folder that learns from them.

    Raises:
        ArgumentError: a teacher has others.
        RunError: a folder cannot be read.
    """
    for teacher in teachers:
        if tokenizers_as_text(teacher) != tokenizers_as_text(path):
            raise ArgumentError(
                f"{teacher} and {path} have different vocabularies: a teacher needs those of its student"
            )

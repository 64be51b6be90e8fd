"""Learning from translators: from their distributions (word level), or from their translations (sequence level)."""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.errors import ArgumentError
from attent.models.model import EncoderDecoder
from attent.ops.linear_cross_entropy import linear_cross_entropy
from attent.runs.folder import tokenizers_as_text
from attent.search.settings import SearchSettings
from attent.tasks.translation.engine import BATCH
from attent.tasks.translation.translator import load_ensemble
from attent.text.batches import KEY_MULTIPLE, ROW_MULTIPLE, Batch, Sequences, batch_of
from attent.text.tokenizer import BOS, EOS, PAD, prompt_of
from attent.training.autotune import Precision, autocast
from attent.training.loss import translation_cross_entropy
from attent.training.settings import TrainingSettings

SEARCH = SearchSettings(beam=5)
# Of each distribution, the likeliest tokens are kept: 192 bytes for each target token, for at most so many of them.
TOP, STORED = 32, 2**22


class Distillation:
    """The loss of a translator that learns from others with the same vocabularies, in nats per token of the references.

    With the share w of the teachers, whose mean distribution is q, the word level is

        −(1 − w) ((1 − ε) log p(y) + ε/V Σ_v log p(v)) − w Σ_v q(v) log p(v)

    summed over the references' tokens. q is computed once for each pair: its 32 largest probabilities are kept, in 16
    bits, and the rest of it is spread evenly over the vocabulary. On the sequence level, the reference of each batch
    is replaced, with the probability w, by the teachers' translation with a beam of 5, which is computed once for each
    source.

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
        self._distributions, self._stored_tokens = dict[tuple[bytes, bytes], tuple[Tensor, Tensor]](), 0

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
        top_tokens, probs = (torch.cat(part).to(target.device) for part in zip(*self._taught(batch), strict=True))
        answers, probs, layer = target[rows], probs.float() * weight, model.to_logits
        with autocast(batch.source.device, precision):
            features = model.decode(model.encode(batch.source, batch.source_lengths), batch.target_in)
            features = features.flatten(0, 1)[rows]
            loss = linear_cross_entropy(features, layer.weight, layer.bias, answers)
        # This is the loss for the answer alone. Other target probabilities change only the part that is linear in the
        # logits, by their difference: `shares` at the answer and the teachers' tokens, `even` at every token.
        tokens = torch.cat([answers[:, None], top_tokens.long()], 1)
        shares = torch.cat([probs.new_full((len(rows), 1), (1 - weight) * (1 - smoothing) - 1), probs], 1)
        even = -shares.sum(1, keepdim=True) / layer.out_features
        for inputs, parameter in ((features.float(), layer.weight), (torch.ones_like(even), layer.bias)):
            if parameter is not None:
                columns = parameter.float().view(layer.out_features, -1)
                mean = F.embedding_bag(tokens, columns, mode="sum", per_sample_weights=shares) + even * columns.sum(0)
                loss = loss - (inputs * mean).sum() / len(rows)
        return loss

    def _taught(self, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """Return the teachers' likeliest tokens, (T, 32), and their probabilities for each pair of a batch."""
        sides = (batch.source, batch.source_lengths), (batch.target_in, batch.target_lengths)
        sequences = (
            [row[:length].tobytes() for row, length in zip(side.cpu().numpy(), lengths.tolist(), strict=True)]
            for side, lengths in sides
        )
        keys, stored = [*zip(*sequences, strict=True)], self._distributions
        new = [row for row, key in enumerate(keys) if key not in stored]
        computed = dict(zip((keys[row] for row in new), self._computed(batch, new) if new else (), strict=True))
        if self._stored_tokens < STORED:
            stored |= computed
            self._stored_tokens += sum(len(probs) for _, probs in computed.values())
        return [stored.get(key) or computed[key] for key in keys]

    @torch.no_grad()
    def _computed(self, batch: Batch, rows: list[int]) -> Iterable[tuple[Tensor, Tensor]]:
        """Compute the likeliest tokens and their probabilities for rows of a batch.

        The numbers of rows and columns are rounded up, so that a pair's distributions do not depend on its batch.
        """
        teacher, index = self._teacher, [*rows, *rows[:1] * (-len(rows) % ROW_MULTIPLE)]
        source, target = (
            F.pad(side[index], (0, max(min(-length % KEY_MULTIPLE, (teacher.longest or 2**31) - length), 0)))
            for side in (batch.source, batch.target_in)
            for length in side.shape[1:]
        )
        features = teacher.model.decode(teacher.model.encode(source, batch.source_lengths[index]), target)
        lengths = batch.target_lengths[rows]
        is_token = torch.arange(target.shape[1], device=target.device) < lengths[:, None]
        logits = teacher.model.output(features)[: len(rows)][is_token]
        probs, top_tokens = logits.softmax(-1).topk(min(TOP, logits.shape[-1]))
        return zip(*(part.split(lengths.tolist()) for part in (top_tokens.int(), probs.half())), strict=True)

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

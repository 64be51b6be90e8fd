from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from attent.errors import DataError
from attent.tasks.caption.task import CaptionExamples, CaptionTask
from attent.tasks.settings import RunSettings
from attent.text.batches import BatchSize
from attent.text.tokenizer import BOS, EOS, PAD

Make = Callable[..., CaptionExamples]


@pytest.fixture
def make_examples(tmp_path: Path, write: Callable[..., Path], make_settings: Callable[..., RunSettings]) -> Make:
    def make(table: str = "") -> CaptionExamples:
        task = CaptionTask()
        corpus = task.corpus(make_settings(write(tmp_path / "a", {"train": 6, "valid": 2}), table=table))
        return task.encode(corpus, task.learn_vocabularies(corpus))

    return make


def test_a_batch(make_examples: Make) -> None:
    examples = make_examples()
    batch = examples.batch(np.array([1, 4, 5]))
    assert batch.source.shape == (3, 6, 4)
    assert batch.source.dtype == torch.float32
    assert batch.source_lengths.tolist() == [6, 6, 6]
    assert batch.target_in[:, 0].tolist() == [BOS] * 3
    assert batch.target_out[:, -1].tolist() == [EOS] * 3
    assert batch.tokens == int((batch.target_out != PAD).sum()) == examples.token_count(np.array([1, 4, 5])) == 15
    # the standardized pixels of the first patch, of two rows by two columns
    pixels = examples.pictures.pixels
    expected = (pixels[4, :2, :2, 0] / 255 - examples.pictures._inputs.mean[0]) / (
        examples.pictures._inputs.deviation[0]
    )
    torch.testing.assert_close(batch.source[1, 0].double(), torch.from_numpy(expected).flatten(), atol=1e-5, rtol=1e-5)
    assert examples.lengths().tolist() == [6] * 6
    assert sum(len(rows) for rows, _ in examples.sorted_batches(BatchSize(pairs=4))) == 6


def test_augmentation_depends_on_the_epoch_and_on_training_only(make_examples: Make) -> None:
    examples = make_examples("shift = 1.0")
    rows = np.array([0, 3])
    first, same, other = (examples.augmented(rows, 0, epoch).source for epoch in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(examples.batch(rows).source, examples.batch(rows).source)
    assert not torch.equal(examples.batch(rows).source, first)


def test_changed_pictures_and_captions_change_the_digest(make_examples: Make) -> None:
    examples = make_examples()
    digest = examples.digest()
    assert digest == make_examples().digest()
    pixels = examples.pictures.pixels
    # a picture of the validation set
    pixels[7] += 1
    assert examples.digest() == digest
    pixels[3] += 1
    assert examples.digest() != digest


def test_an_overlong_caption_is_refused(make_examples: Make) -> None:
    with pytest.raises(DataError, match="a caption has 4 tokens, more than 3: 'light on the left'"):
        make_examples("maximum_length = 3")

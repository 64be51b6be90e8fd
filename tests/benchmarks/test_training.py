import itertools

import _corpora as corpora
import _training
import pytest
import torch
from _training import Side, attent_update, compare, make_sides, measure, table_rows, transformer

from attent.models.settings import RnnSettings
from attent.text.batches import BatchSize, Bitext
from attent.text.tokenizers import learn
from attent.training.autotune import ComputeConfig

PIECES, TOKENS = 40, 64
SMALL = transformer("tiny").model_copy(
    update={"encoder_layers": 1, "decoder_layers": 1, "width": 8, "feed_forward": 8, "heads": 2}
)
NARROW = RnnSettings(embedding_width=6, width=8)


@pytest.fixture
def data() -> Bitext:
    pairs = corpora.synthetic_pairs(PIECES, number=60, length=5)
    return corpora.bitext(pairs, learn("word", [pair.source for pair in pairs], PIECES))


def test_the_update_is_that_of_the_training_loop(data: Bitext) -> None:
    """Fed its own batches it comes to the same weights as attent train, bit for bit."""
    settings = _training.TrainingSettings(
        updates=3, batch_tokens=TOKENS, schedule="constant", warmup=0, precision="float32", threads=1, seed=1
    )
    torch.manual_seed(0)
    single, fed = (_training.build(SMALL, PIECES, PIECES) for _ in range(2))
    fed.load_state_dict(single.state_dict())
    from attent.training.loop import train

    train(single, data, settings, progress=_training.SilentProgress())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_training, "build", lambda *sizes: fed)
        update = attent_update(SMALL, PIECES, ComputeConfig("float32", 1), data, TOKENS)
    for batch in itertools.islice(data.stream(BatchSize(tokens=TOKENS), 1), 3):
        update(batch)
    for name, value in single.state_dict().items():
        assert torch.equal(value, fed.state_dict()[name]), name


@pytest.mark.parametrize("model", [SMALL, NARROW], ids=["transformer", "rnn"])
def test_sides_are_ours_and_theirs_in_both_precisions_on_each_number_of_threads(
    model: _training.ModelSettings, data: Bitext
) -> None:
    sides = make_sides(model, PIECES, data, TOKENS, threads=(1, 2))
    torch.set_num_threads(1)
    plain = len(_training.PLAIN[model.kind])
    assert len({side.name for side in sides}) == len(sides) == 2 * 2 * (1 + plain)
    assert {side.compute for side in sides} == {
        ComputeConfig(precision, number) for precision in ("float32", "bfloat16") for number in (1, 2)
    }
    batch = next(data.stream(BatchSize(tokens=TOKENS), 1))
    for side in sides:
        if side.compute.threads == 1:
            side.update(batch)


def test_sides_take_turns_on_the_same_batches_and_the_first_round_does_not_count(data: Bitext) -> None:
    records: dict[str, list[int]] = {"a": [], "b": []}
    before = torch.get_num_threads()
    sides = [
        Side(name, ComputeConfig("float32", 2), lambda batch, name=name: records[name].append(batch.tokens))
        for name in records
    ]
    peers = {"c": lambda: 5.0, "d": lambda: None}
    measurements = measure(sides, data.stream(BatchSize(tokens=TOKENS), 1), 2, 3, peers=peers)
    assert records["a"] == records["b"]
    assert len(records["a"]) == 3 * 3
    assert [len(measurements[name]) for name in records] == [2, 2]
    assert measurements["c"] == [5.0, 5.0]
    assert "d" not in measurements
    assert torch.get_num_threads() == before


def test_rows_by_hand() -> None:
    rows = table_rows({"attent, float32": [10, 30, 20], "attent, bfloat16": [60, 40, 50], "other": [15, 5, 10]})
    assert [row["best"] for row in rows] == [30, 60, 15]
    assert [row["median"] for row in rows] == [20, 50, 10]
    assert [row["times"] for row in rows] == [2, 1, 4]


def test_a_report(data: Bitext) -> None:
    messages: list[str] = []
    report = compare(SMALL, data, PIECES, "this and that", tokens=TOKENS, rounds=1, updates=1, say=messages.append)
    assert "this and that" in report.title
    assert len(report.tables[0].rows) == 4
    assert messages[0] == "warming up: attent, float32"

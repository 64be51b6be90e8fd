import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import attent
from attent.alignment.forced_decoding import AttentionSelector, selected_batches
from attent.attention.capture.watch import watch
from attent.errors import ArgumentError
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.runs.config import RunConfig
from attent.runs.folder import RunWriter
from attent.search.settings import SearchSettings
from attent.tasks.translation.stepwise import StepwiseDecoding
from attent.tasks.translation.translation_lines import LineFormat, LineTranslator
from attent.tasks.translation.translator import Translator, load, load_ensemble, parallel_map
from attent.text.batches import BatchSize
from attent.text.text import Pair
from attent.text.tokenizer import BOS, EOS, CharTokenizer

SETTINGS = TransformerSettings(
    encoder_layers=1, decoder_layers=2, width=16, feed_forward=17, heads=2, share_embeddings="none"
)
SOURCE, TARGET = CharTokenizer("abcde"), CharTokenizer("0123456")
TEXTS = ["abc", "", "edcba" * 4, "a", "ü", "bad", "", "cab"]


def make_translator() -> Translator:
    torch.manual_seed(2)
    return Translator(Transformer(SETTINGS, SOURCE.size, TARGET.size), SOURCE, TARGET)


def test_a_translation_ends_by_the_length_of_its_own_source() -> None:
    lengths = [len(text) for text in make_translator().translate(TEXTS)]
    assert all(length <= 2 * len(text) + 32 for length, text in zip(lengths, TEXTS, strict=True))
    assert max(map(len, make_translator().translate(TEXTS, SearchSettings(maximum_length=3)))) == 3


SAMPLES = SearchSettings(sample=True, n_best=3, temperature=0.7, top_k=5, top_p=0.9, seed=4)


def test_a_text_without_tokens_has_an_empty_translation() -> None:
    translator = make_translator()
    assert translator.translate([]) == []
    assert translator.translate(TEXTS)[1] == ""
    assert translator.translate(["", ""]) == ["", ""]


@pytest.mark.parametrize("settings", [SearchSettings(beam=3, n_best=3), SAMPLES], ids=["beam", "samples"])
def test_every_search_keeps_the_order_whatever_the_batch(settings: SearchSettings) -> None:
    translator = make_translator()
    joint = translator.search(TEXTS, settings)
    assert [len(hypotheses) for hypotheses in joint] == [3, 1, 3, 3, 3, 3, 1, 3]
    for hypotheses in joint:
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
    texts = [[hypothesis.text for hypothesis in hypotheses] for hypotheses in joint]
    if settings.sample:
        assert translator.search(TEXTS, settings.model_copy(update={"seed": 5})) != joint
    reordered = translator.search(TEXTS[::-1], settings)[::-1]
    batches = [translator.search(TEXTS, settings, batch=batch) for batch in (1, BatchSize(tokens=7))]
    for results in (*batches, reordered):
        assert [[hypothesis.text for hypothesis in hypotheses] for hypotheses in results] == texts


def test_a_translation_begins_as_it_must() -> None:
    translator = make_translator()
    prefixes = ["12", "", "0", "66666", "1", "", "3", ""]
    for settings in (SearchSettings(), SearchSettings(beam=3), SAMPLES):
        translations = translator.translate(TEXTS, settings, prefixes=prefixes)
        triples = zip(translations, prefixes, TEXTS, strict=True)
        assert all(text.startswith(prefix) for text, prefix, source in triples if source)
    with pytest.raises(ArgumentError, match="a prefix for each of 8 texts, got 1"):
        translator.translate(TEXTS, prefixes=["1"])


def test_what_is_found_scores_as_what_is_given() -> None:
    translator = make_translator()
    settings = SearchSettings(beam=3, n_best=3, length_penalty=0.7)
    # a translation that holds an unknown piece is read, but cannot be written, as tokens
    result = [item for item in translator.search(["cab"], settings)[0] if len(item.text) == len(item.tokens)]
    scores = translator.score([("cab", item.text) for item in result])
    assert result
    for item, score in zip(result, scores, strict=True):
        assert item.log_probability == pytest.approx(score.log_probability, abs=1e-4)
    assert [item.length_penalty for item in result] == [((5 + score.tokens) / 6) ** 0.7 for score in scores]
    assert translator.score([Pair("cab", "1")]) == translator.score([("cab", "1")], batch=1)


def test_a_string_gives_one_result_and_is_not_read_letter_by_letter() -> None:
    translator, beam = make_translator(), SearchSettings(beam=3, n_best=2)
    assert translator.translate("bad", prefixes="12") == translator.translate(["bad"], prefixes=["12"])[0]
    assert translator.search("bad", beam) == translator.search(["bad"], beam)[0]
    ids, result = TARGET.encode("12"), translator.search("bad", prefixes="12")
    assert translator.search("bad", prefixes=ids) == result == translator.search(["bad"], prefixes=[ids])[0]
    assert translator.translate(("bad", "cab")) == translator.translate(["bad", "cab"])
    score = translator.score(("bad", "12"))
    assert score == translator.score(Pair("bad", "12")) == translator.score([("bad", "12")])[0]
    assert translator.score((("bad", "12"), ("cab", "3"))) == translator.score([["bad", "12"], Pair("cab", "3")])
    with pytest.raises(ArgumentError, match="a prefix for each of 2 texts, got '12'"):
        translator.translate(["bad", "cab"], prefixes="12")
    with pytest.raises(ArgumentError, match="a prefix must be a string or the ids of its tokens"):
        translator.search("bad", prefixes=["12"])
    for wrong in (["ab", "cd"], "ab", ("a", "b", "c"), [("a", "b", "c")]):
        with pytest.raises(ArgumentError, match=r"a pair must be \(source, target\), got "):
            translator.score(wrong)


def test_maps_are_labelled_by_what_their_rows_emit() -> None:
    maps = make_translator().map("bad", "10")
    read, emitted, inputs = ("b", "a", "d"), ("1", "0", "</s>"), ("<s>", "1", "0")
    assert {name: (labelled.rows, labelled.columns) for name, labelled in maps.items()} == {
        "encoder.layers.0.self_attention": (read, read),
        "decoder.layers.0.self_attention": (emitted, inputs),
        "decoder.layers.0.cross_attention": (emitted, read),
        "decoder.layers.1.self_attention": (emitted, inputs),
        "decoder.layers.1.cross_attention": (emitted, read),
    }
    for labelled in maps.values():
        assert labelled.weights.shape == (1, 2, len(labelled.rows), len(labelled.columns))
        torch.testing.assert_close(labelled.weights.dense().sum(-1), torch.ones(1, 2, len(labelled.rows)))
    # of the model's own translation unless one is given
    own = make_translator().map("bad")["decoder.layers.1.cross_attention"]
    assert "".join(own.rows[:-1]) == make_translator().translate("bad")
    with pytest.raises(ArgumentError, match="empty source"):
        make_translator().map("")


def test_gradients_are_those_of_the_log_probability() -> None:
    translator = make_translator()
    maps = translator.map("bad", "10", gradients=True)
    labelled = maps["decoder.layers.1.cross_attention"]
    assert labelled.gradients is not None
    with watch(translator.model, gradients=True) as captured:
        tokens = torch.tensor([[BOS, *TARGET.encode("10")]])
        features = translator.model.decode(translator.encode(SOURCE.encode("bad")), tokens)
        log_probs = translator.model.output(features)[0].log_softmax(-1)
    total = log_probs[0, TARGET.encode("10")[0]] + log_probs[1, TARGET.encode("10")[1]] + log_probs[2, EOS]
    assert total.item() == pytest.approx(translator.score(("bad", "10")).log_probability, abs=1e-5)
    expected = captured.gradients(total)["decoder.layers.1.cross_attention"].dense()
    torch.testing.assert_close(labelled.gradients.dense(), expected, atol=1e-6, rtol=1e-4)
    # the graph is not kept with the maps
    assert labelled.weights.outputs is not None
    assert labelled.weights.outputs.context is None
    assert translator.map("bad", "10")["decoder.layers.1.cross_attention"].gradients is None


def test_a_text_that_fails_the_input_check_is_refused() -> None:
    def check(text: str) -> str | None:
        return f"{text!r} has no b" if "b" not in text else None

    translator = Translator(make_translator().model, SOURCE, TARGET, check)
    expected = make_translator().translate(["bad", "cab"])
    assert translator.translate(["bad", "add", "cab"]) == [expected[0], "", expected[1]]
    assert [translator.read(text).refusal for text in ("bad", "add", "")] == [None, "'add' has no b", None]
    for read in (translator.map, lambda text: StepwiseDecoding(translator, text)):
        with pytest.raises(ArgumentError, match="'add' has no b"):
            read("add")
    assert translator.map("add", "1").keys() == make_translator().map("add", "1").keys()


def test_a_text_that_learned_positions_cannot_number_is_left_untranslated() -> None:
    settings = SETTINGS.model_copy(update={"position": "learned", "maximum_length": 40})
    translator = Translator(Transformer(settings, SOURCE.size, TARGET.size), SOURCE, TARGET)
    assert translator.longest_source == 32
    short, long, longest = translator.translate(["abc", "a" * 33, "b" * 32])
    assert long == ""
    assert max(len(short), len(longest)) <= 39
    assert make_translator().longest_source is None


@pytest.fixture
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_answers_come_in_the_order_of_the_parts_from_threads_of_one_each() -> None:
    meeting = threading.Barrier(2, timeout=30)

    def work(number: int) -> tuple[int, int, str]:
        if number < 2:
            # neither goes on alone
            meeting.wait()
            time.sleep(0.02 * (1 - number))
        return number, torch.get_num_threads(), threading.current_thread().name

    result = list(parallel_map(work, range(5)))
    assert [number for number, _, _ in result] == list(range(5))
    assert {threads for _, threads, _ in result} == {1}
    assert result[0][2] != result[1][2]
    assert torch.get_num_threads() == 2
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [2]


@pytest.mark.usefixtures("_two_threads")
def test_one_part_keeps_all_threads_and_an_error_gives_them_back() -> None:
    actual = list(parallel_map(lambda _: (torch.get_num_threads(), threading.current_thread()), [0]))
    assert actual == [(2, threading.current_thread())]
    with pytest.raises(KeyError):
        list(parallel_map(lambda number: {0: 0, 2: 2, 3: 3}[number], range(4)))
    assert torch.get_num_threads() == 2


def test_lines_are_numbered_from_those_before_them() -> None:
    translator, said = load(Path(__file__).parents[2] / "frozen" / "runs" / "pairs"), list[str]()
    translator.longest = 16
    lines = LineTranslator(translator, translator.search, said.append, translator.config, LineFormat(scores=True))
    output, is_usable = lines.translate([(7, "the dog"), (8, "the cat " * 20)])
    assert [line.split(" ||| ")[0] for line in output] == ["7", "8"] and not is_usable and not lines.is_empty
    assert len(said) == 1 and said[0].startswith("line 9: not translated: ")
    assert lines.warning is None
    lines.repetitive = [*range(1, 8)]
    assert lines.warning is not None and lines.warning.startswith("7 translations repeat themselves, line 1,2,3,4,5: ")


def write_runs(folder: Path, *tokenizers: CharTokenizer) -> list[Path]:
    runs = [folder / str(seed) for seed in range(len(tokenizers))]
    for seed, (run, target) in enumerate(zip(runs, tokenizers, strict=True)):
        torch.manual_seed(seed)
        model = Transformer(SETTINGS, SOURCE.size, target.size)
        with RunWriter(run) as writer:
            writer.finish(RunConfig(model=SETTINGS), model, SOURCE, target)
    return runs


def test_the_links_of_an_ensemble_are_those_of_the_mean_weights(tmp_path: Path) -> None:
    runs = write_runs(tmp_path, TARGET, TARGET, TARGET)
    sources, targets = [[4, 5, 6], [7, 4]], [[5, 6, 7, 4], [6]]

    def weights(model: Any) -> list[torch.Tensor]:
        return [weights for _, weights in selected_batches(model, sources, targets, AttentionSelector())]

    single = [weights(load(run).model) for run in runs]
    for actual, *of_models in zip(weights(load_ensemble(runs).model), *single, strict=True):
        torch.testing.assert_close(actual, torch.stack(of_models).mean(0))
        assert not torch.allclose(actual, of_models[0], atol=1e-3)


def test_an_ensemble_has_one_vocabulary(tmp_path: Path) -> None:
    first, second, third = write_runs(tmp_path, TARGET, TARGET, CharTokenizer("0123457"))
    ensemble = attent.load([first, second])
    assert "Ensemble" in repr(ensemble) and ensemble.config == load(first).config
    assert ensemble.translate(TEXTS, batch=1) == ensemble.translate(TEXTS)
    pairs = [Pair("abc", "012")]
    log_probabilities = torch.tensor([load(run).score(pairs)[0].log_probability for run in (first, second)])
    # the mean at each token lies between the models
    assert log_probabilities.min() - 1 < ensemble.score(pairs)[0].log_probability < log_probabilities.max() + 1
    with pytest.raises(ArgumentError, match=r"2 and .*0 have different vocabularies, and cannot be an ensemble"):
        attent.load([first, second, third])

import pytest

from attent.errors import ArgumentError
from attent.search.settings import GenerationSettings
from attent.tasks.text_generation.stepwise import StepwiseGeneration
from attent.tasks.text_generation.text_generator import TextGenerator
from attent.text.tokenizer import EOS


@pytest.mark.parametrize("prompt", ["", "the dog"])
def test_it_writes_what_generate_does_with_the_alternatives(generator: TextGenerator, prompt: str) -> None:
    generation = StepwiseGeneration(generator, prompt, top_k=3, max_new_tokens=7)
    steps = list(generation)
    whole = generator.generate(prompt, GenerationSettings(max_new_tokens=7))
    assert [step.chosen.token for step in steps] == list(whole.tokens)
    assert generation.continuation == whole.continuation
    tokens = generator.encode(prompt)
    for step in steps:
        probs = generator.next_token_probs(tokens)
        assert [candidate.probability for candidate in step.candidates] == sorted(
            (c.probability for c in step.candidates), reverse=True
        )
        assert step.chosen.probability == pytest.approx(float(probs[step.chosen.token]), abs=1e-5)
        assert len(step.candidates) == 3
        tokens.append(step.chosen.token)
    (rows,) = {labelled.rows for labelled in generation.map().values()}
    assert rows == generator.labels([2, *(token for token in tokens if token != EOS)])


def test_what_is_given_comes_first_and_the_context_ends_it(generator: TextGenerator) -> None:
    short = TextGenerator(generator.model, generator.tokenizer, context=6, stops_at_line_end=False)
    prefix = generator.encode("the dog was")
    generation = StepwiseGeneration(short, "so it", prefix)
    assert [(step.chosen.token, step.is_forced) for step in generation][:3] == [(token, True) for token in prefix]
    assert len(generation.tokens) == 4
    with pytest.raises(ArgumentError, match="the text has 6 tokens, more than the 5 that this model can read"):
        StepwiseGeneration(short, "so it slept", prefix)
    with pytest.raises(ArgumentError, match="a prefix must consist of word ids from 1 to"):
        StepwiseGeneration(generator, "the", [EOS])

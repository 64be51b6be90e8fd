import torch

from attent.search.constraints import Constraints
from attent.text.tokenizer import EOS


def test_a_prompt_is_forced_and_counts_no_log_probability() -> None:
    constraints = Constraints.of(torch.tensor([5, 5]), [[7, 8], [7]], prompt_length=1)
    log_probs = torch.randn(2, 9).log_softmax(-1)
    first = constraints.apply(log_probs, torch.zeros(2, 0, dtype=torch.long))
    assert first.argmax(1).tolist() == [7, 7]
    assert first.amax(1).tolist() == [0, 0]
    assert first.isinf().sum(1).tolist() == [8, 8]
    # what is forced after it keeps the model's number
    second = constraints.apply(log_probs, torch.tensor([[7], [7]]))
    assert second[0, 8] == log_probs[0, 8]
    assert torch.equal(second[1, EOS:], log_probs[1, EOS:])

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace

from attent.learning import check


@dataclass(frozen=True)
class Hypothesis:
    tokens: tuple[int, ...]
    log_prob: float


def search(next_log_probs, beam, longest, end, alpha, change: str = "") -> tuple[list[int], float]:
    """A beam search with a heap, with a mistake."""
    running, finished = [Hypothesis((), 0.0)], []

    def extended(hypothesis: Hypothesis, token: int, log_prob: float) -> Hypothesis:
        total = {
            "product": hypothesis.log_prob * log_prob if hypothesis.tokens else log_prob,
            "probabilities": hypothesis.log_prob + math.exp(log_prob),
            "last": log_prob,
            "endless": hypothesis.log_prob + (0.0 if token == end else log_prob),
        }.get(change, hypothesis.log_prob + log_prob)
        return Hypothesis((*hypothesis.tokens, token), total)

    for length in range(longest + 1):
        groups = []
        for hypothesis in running:
            prefix = list(hypothesis.tokens)
            log_probs = next_log_probs(prefix[-1:] if change == "short" else prefix).tolist()
            tokens = range(len(log_probs)) if length < longest else [end]
            groups.append([extended(hypothesis, token, log_probs[token]) for token in tokens])
        if change == "own" and len(groups) == beam:
            groups = [[max(group, key=lambda hypothesis: hypothesis.log_prob)] for group in groups]
        extensions = [hypothesis for group in groups for hypothesis in group]
        pick = heapq.nsmallest if change == "worst" else heapq.nlargest
        ranked = pick(len(extensions), extensions, key=lambda hypothesis: hypothesis.log_prob)
        top = ranked if change == "far" else ranked[:beam]
        finished += [hypothesis for hypothesis in top if hypothesis.tokens[-1] == end]
        if change == "early" and finished:
            break
        if change == "extended":
            running = ranked[:beam]
        else:
            ranked = ranked[:beam] if change == "places" else ranked
            running = [hypothesis for hypothesis in ranked if hypothesis.tokens[-1] != end]
            running = running[: 1 if change == "greedy" else beam]

    def score(hypothesis: Hypothesis) -> float:
        length = len(hypothesis.tokens)
        if change == "length":
            length = max(1, length - 1)
        penalty = {"penalty": 1.0, "times": length**-alpha}.get(change, length**alpha)
        return hypothesis.log_prob / penalty

    best = max(finished, key=score)
    tokens = list(best.tokens) if change == "end" else list(best.tokens)[:-1]
    return tokens, replace(best).log_prob if change == "total" else score(best)


def test_solutions_pass() -> None:
    judgment = check(6, search)
    assert judgment.is_right, judgment
    (panel,) = judgment.panels.values()
    assert panel.rows == ("le", "chien", "noir", "chante", "•")
    # greedy search would have begun with un
    assert panel.columns[int(panel.weights[0].argmax())] == "un"


def test_usual_mistakes_are_named(assert_named) -> None:
    changes = {
        "This is greedy search": "greedy",
        "Each hypothesis keeps its own": "own",
        "The log-probabilities are multiplied": "product",
        "Probabilities are added": "probabilities",
        "The log-probability of the last token": "last",
        "The length penalty is missing": "penalty",
        "log P is multiplied by": "times",
        "The length leaves out": "length",
        "The log-probability of the end token": "endless",
        "The search ends with the first": "early",
        "Finished hypotheses take places": "places",
        "Finished hypotheses are extended": "extended",
        "A hypothesis that ends far": "far",
        "The model is asked about the last": "short",
        "The tokens hold the end": "end",
        "The score is log P without": "total",
        "The worst continuations": "worst",
    }
    assert_named(
        6, {begin: (lambda *inputs, change=change: search(*inputs, change)) for begin, change in changes.items()}
    )

"""Kernel regression beside statsmodels' KernelReg: 10,000 queries against 100,000 keys, with 1, 2 and 4 features.

    scripts/bench regression [speed] [memory] [learning]

Both use the same Gaussian kernel and the bandwidths of the normal reference rule. statsmodels computes queries one by
one, each in the same time, so only 50 of the 10,000 are measured and its time is scaled up; the sides alternate for
five rounds, and the shortest time counts.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from _machine import memory_growth, run_in_process
from _sides import head, run, table
from statsmodels import __version__
from statsmodels.nonparametric.kernel_regression import KernelReg

from attent.nonparametric.estimator import AttentionRegressor, rule_of_thumb

QUERIES, KEYS, SAMPLE, ROUNDS = 10_000, 100_000, 50, 5


def data(keys: int, queries: int, features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return random keys, values and queries."""
    dice = np.random.default_rng(features)
    x = dice.normal(size=(keys, features))
    return x, np.sin(x.sum(1)) + 0.1 * dice.normal(size=keys), dice.normal(size=(queries, features))


def seconds(work: object) -> float:
    """Return the duration of a call in seconds."""
    started = time.perf_counter()
    work()  # pyright: ignore[reportCallIssue]
    return time.perf_counter() - started


def speed() -> None:
    """Measure the seconds for all queries, and the largest difference."""
    head(f"Kernel regression, {QUERIES:,} queries, {KEYS:,} keys, beside statsmodels {__version__}")
    rows = []
    for features in (1, 2, 4):
        x, y, query = data(KEYS, QUERIES, features)
        bandwidth = rule_of_thumb(x)
        peer = KernelReg(y, x, "c" * features, "lc", bw=bandwidth, rng=0)
        expected = peer.fit(query[:SAMPLE])[0]
        model, times = AttentionRegressor(bandwidth).fit(x, y), {"peer": list[float](), "attent": list[float]()}
        for _ in range(ROUNDS):
            times["peer"].append(seconds(lambda peer=peer, query=query: peer.fit(query[:SAMPLE])) * QUERIES / SAMPLE)
            times["attent"].append(seconds(lambda model=model, query=query: model.predict(query)))
        best = {name: min(durations) for name, durations in times.items()}
        error = np.abs(model.predict(query[:SAMPLE]) - expected).max()
        ratio = best["peer"] / best["attent"]
        rows.append([str(features), f"{best['peer']:.1f}", f"{best['attent']:.2f}", f"{ratio:.1f}", f"{error:.1e}"])
    table(["features", "statsmodels, s", "attent, s", "times as fast", "largest error"], rows)


def prediction_memory(keys: int) -> float | None:
    """Return the memory for predictions, in MiB."""
    torch.set_num_threads(1)
    x, y, query = data(keys, QUERIES, 2)
    model = AttentionRegressor("rule").fit(x, y)
    model.predict(query[:100])
    return memory_growth(lambda: model.predict(query))


def memory() -> None:
    """Measure the memory of predictions by the number of keys."""
    head(f"Memory of {QUERIES:,} predictions, 2 features")
    rows = []
    for keys in (25_000, 50_000, 100_000, 200_000):
        more = run_in_process(prediction_memory, keys)
        rows.append([f"{keys:,}", "unknown" if more is None else f"{more:.0f}", f"{QUERIES * keys * 8 / 2**20:,.0f}"])
    table(["keys", "memory grown, MiB", "one table of weights, MiB"], rows)


def learning() -> None:
    """Compare the cross-validation scores of both bandwidths, by statsmodels' own function."""
    head(f"Bandwidths learnt by leaving one out, beside statsmodels {__version__} (cv_ls)")
    rows = []
    for features, count in ((1, 100), (2, 100), (3, 100), (2, 300)):
        for seed in range(3):
            dice = np.random.default_rng(seed)
            x = dice.uniform(-2, 2, (count, features))
            y = np.sin(3 * x[:, 0]) + 0.3 * dice.normal(size=count)
            fits: dict[str, object] = {}
            durations = [
                seconds(
                    lambda x=x, y=y, fits=fits: fits.update(
                        peer=KernelReg(y, x, "c" * x.shape[1], "lc", bw="cv_ls", rng=0)
                    )
                ),
                seconds(lambda x=x, y=y, fits=fits: fits.update(attent=AttentionRegressor().fit(x, y))),
            ]
            peer, model = fits["peer"], fits["attent"]
            scores = [float(peer.cv_loo(np.abs(h), peer._est_loc_constant)[0]) for h in (peer.bw, model.bandwidth_)]  # pyright: ignore[reportAttributeAccessIssue]
            cells = [*(f"{score:.6f}" for score in scores), *(f"{duration:.2f}" for duration in durations)]
            rows.append([str(features), str(count), str(seed), *cells])
    table(["features", "points", "seed", "CV of statsmodels", "CV of attent", "statsmodels, s", "attent, s"], rows)


PARTS = {"speed": speed, "memory": memory, "learning": learning}

if __name__ == "__main__":
    run(PARTS, __doc__)

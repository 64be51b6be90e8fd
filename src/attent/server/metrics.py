"""Numbers for Prometheus. They name no address and no text."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters and histograms of a server.

    Args:
        running: returns the number of sentences that are translated now.
        waiting: returns the number of sentences that wait.
    """

    def __init__(self, running: Callable[[], float], waiting: Callable[[], float]) -> None:
        self._registry = registry = CollectorRegistry()
        requests = Counter(
            "attent_requests", "Requests by endpoint and status.", ("endpoint", "status"), registry=registry
        )
        latency = Histogram(
            "attent_request_seconds",
            "Seconds from request to answer.",
            ("endpoint",),
            registry=registry,
            buckets=SECONDS,
        )
        # as many as there are endpoints and statuses; prometheus_client takes as long to find one as to count
        self._requests = cache(lambda endpoint, status: requests.labels(endpoint, str(status)))
        self._latency = cache(latency.labels)
        self._characters = Counter("attent_characters", "Characters of translated texts.", registry=registry)
        self._sentences = Counter("attent_sentences", "Translated sentences.", registry=registry)
        self._batch = Histogram("attent_batch_sentences", "Sentences of a batch.", registry=registry, buckets=SIZES)
        self._batch_seconds = Histogram(
            "attent_batch_seconds", "Seconds of a batch.", registry=registry, buckets=SECONDS
        )
        self._wait = Histogram(
            "attent_queue_seconds", "Longest wait of a batch's sentences.", registry=registry, buckets=SECONDS
        )
        Gauge("attent_running_sentences", "Sentences that are translated now.", registry=registry).set_function(running)
        Gauge("attent_waiting_sentences", "Sentences that wait.", registry=registry).set_function(waiting)

    def observe_request(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request: its endpoint, the status of its answer, and the seconds that it took."""
        self._requests(endpoint, status).inc()
        self._latency(endpoint).observe(seconds)

    def observe_batch(self, sentences: int, characters: int, seconds: float, wait: float) -> None:
        """Count a batch: its sentences and their characters, its seconds, and how long one of them waited at most."""
        self._sentences.inc(sentences)
        self._characters.inc(characters)
        self._batch.observe(sentences)
        self._batch_seconds.observe(seconds)
        self._wait.observe(wait)

    def text(self) -> bytes:
        """Return all numbers in Prometheus' text format."""
        return generate_latest(self._registry)

import signal
import threading
from collections.abc import Iterator

import pytest

from attent.training.interruption import deferred_interrupt


@pytest.fixture(autouse=True)
def as_in_the_foreground() -> Iterator[None]:
    """Python's own answer to Ctrl-C, which a shell turns off for what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_only_noted(number: int) -> None:
    before = signal.getsignal(number)
    with deferred_interrupt() as interruption:
        assert not interruption.is_requested
        signal.raise_signal(number)
        assert interruption.is_requested
    assert signal.getsignal(number) is before


def test_the_second_acts() -> None:
    with pytest.raises(KeyboardInterrupt), deferred_interrupt() as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.is_requested
        signal.raise_signal(signal.SIGINT)


def test_other_threads_hold_nothing_back() -> None:
    seen = []

    def run() -> None:
        with deferred_interrupt() as interruption:
            seen.append(interruption.is_requested)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]

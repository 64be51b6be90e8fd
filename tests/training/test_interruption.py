import signal
import threading
from collections.abc import Iterator

import pytest

from attent.training.interruption import interruptible


@pytest.fixture(autouse=True)
def as_in_the_foreground() -> Iterator[None]:
    """Python's own answer to Ctrl-C, which a shell turns off for what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_only_noted(number: int) -> None:
    before = signal.getsignal(number)
    with interruptible() as interruption:
        assert not interruption.asked
        signal.raise_signal(number)
        assert interruption.asked
    assert signal.getsignal(number) is before


def test_the_second_acts() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible() as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.asked
        signal.raise_signal(signal.SIGINT)


def test_other_threads_hold_nothing_back() -> None:
    seen = []

    def run() -> None:
        with interruptible() as interruption:
            seen.append(interruption.asked)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]

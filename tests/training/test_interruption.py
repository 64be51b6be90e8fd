import signal
import threading

import pytest

from attent.training.interruption import interruptible


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

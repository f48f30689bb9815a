"""Forked processes: what one of them holds when it is killed, or at the fork, stops no other."""

import time
from pathlib import Path
from threading import Event, Thread

from forked import forked  # noqa: F401
from tqdm import tqdm


def hold(arguments):
    with tqdm.get_lock():
        Path(*arguments).touch()
        time.sleep(60)


def show(arguments):
    with tqdm(total=1) as bar:
        bar.update()


def test_a_killed_process_leaves_no_lock_of_progress_bars(forked, tmp_path):  # noqa: F811
    running = forked(hold, tmp_path / "held")
    running.wait_until((tmp_path / "held").exists)
    running.kill()
    assert tqdm.get_lock().acquire(timeout=1)
    tqdm.get_lock().release()


def test_a_lock_that_another_thread_has_at_the_fork_is_free(forked):  # noqa: F811
    has_lock, end = Event(), Event()

    def keep():
        with tqdm.get_lock():
            has_lock.set()
            end.wait(60)

    thread = Thread(target=keep)
    thread.start()
    try:
        has_lock.wait(60)
        running = forked(show)
        deadline = time.monotonic() + 30
        while running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert running.poll() == 0
    finally:
        end.set()
        thread.join()

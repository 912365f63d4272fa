"""One line that says where a training stands; in a log file a new one every half minute."""

import sys
import time
from collections.abc import Callable
from typing import Self, TextIO

from abc_nb.training.fit import Progress

REDRAWN, LOGGED = 0.2, 30.0  # seconds from one line to the next, on a terminal and elsewhere


class Status:
    """Writes the progress of a training on standard error, each time that it is called; `name` is its model's."""

    def __init__(
        self,
        name: str,
        stream: TextIO | None = None,
        terminal: bool | None = None,
        clock: Callable[[], float] = time.monotonic,  # in seconds
    ) -> None:
        self.name, self.stream, self.clock = name, stream or sys.stderr, clock
        self.terminal = self.stream.isatty() if terminal is None else terminal
        self.shown = clock()  # when the last line was written
        self.stage: object = None  # the round, and whether contexts are tried
        self.stage_begin, self.stage_count = self.shown, 0  # the time and the count at its begin

    def __call__(self, progress: Progress) -> None:
        """Show the progress, unless a line was shown just now."""
        now, trying = self.clock(), progress.tried < progress.contexts
        count = progress.tried if trying else progress.step
        if (progress.round, trying) != self.stage:
            self.stage, self.stage_begin, self.stage_count = (progress.round, trying), now, count
        if now - self.shown < (REDRAWN if self.terminal else LOGGED):
            return
        self.shown, done = now, count - self.stage_count
        left = (progress.contexts if trying else progress.end) - count
        text = f"{self.name}: {progress_in_words(progress)}"
        text += time_left((now - self.stage_begin) / done * left) if done else ""
        self.stream.write(f"\r{text}\x1b[K" if self.terminal else f"{text}\n")
        self.stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Leave a terminal's line empty for what comes next."""
        if self.terminal:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


def progress_in_words(progress: Progress) -> str:
    """Which round it is, if it is one of practice, and how many steps are done or contexts are tried."""
    words = f"practice, round {progress.round}: " if progress.round else ""
    if progress.tried < progress.contexts:
        return f"{words}{progress.tried:,} of {progress.contexts:,} contexts tried"
    words += f"step {progress.step:,} of {progress.end:,} at most"
    accuracy = progress.history[-1].get("accuracy") if progress.history else None
    return words if accuracy is None else f"{words}, validation {accuracy:.1%}"


def time_left(seconds: float) -> str:
    """In words: seconds up to two minutes, then minutes."""
    return f", about {seconds:.0f} s left" if seconds < 120 else f", about {seconds / 60:.0f} min left"

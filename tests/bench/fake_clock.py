"""A clock that a test moves: what is measured with it depends on no load of the machine."""


class FakeClock:
    """Tells the seconds that calls were said to take."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

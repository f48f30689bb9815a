"""Durations in words."""


def in_words(seconds: float) -> str:
    """A duration in seconds, minutes or hours, such as "2 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"

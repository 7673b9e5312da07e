"""Numbers in the words of a report: percent, points, durations, sizes, and a dash for what is not there."""

from agent2.arena.evidence import SplitScore

DASH = "–"


def percent(value: float | None) -> str:
    """A rate of 0 to 1 as percent with one decimal."""
    return DASH if value is None else f"{100 * value:.1f}%"


def score_words(score: SplitScore | None, missing: str = "not measured") -> str:
    """A score with its 95% interval and how many items it stands on."""
    if score is None:
        return missing
    lost = f", {score.n_missing} missing" if score.n_missing else ""
    return f"{percent(score.value)} [{100 * score.low:.1f}, {100 * score.high:.1f}] (n = {score.n_items}{lost})"


def points(value: float | None) -> str:
    """Percentage points with sign."""
    if value is None:
        return DASH
    return f"{value + 0.0:+.1f}" if abs(value) >= 0.05 else "0.0"


def duration(seconds: float | None) -> str:
    """Seconds, minutes or hours, as a reader would say them."""
    if seconds is None:
        return DASH
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def size(n_bytes: float | None) -> str:
    """Bytes in MiB or GiB."""
    if n_bytes is None:
        return DASH
    return f"{n_bytes / 2**30:.2f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.0f} MiB"


def p_words(p_value: float | None) -> str:
    """A p-value; tiny ones as a bound."""
    if p_value is None:
        return DASH
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.4f}" if p_value < 0.01 else f"p = {p_value:.2f}"


def ratio(value: float | None) -> str:
    """A share of 0 to 1 with two decimals."""
    return DASH if value is None else f"{value:.2f}"


def count(value: int | None) -> str:
    """A whole number, or a dash."""
    return DASH if value is None else str(value)


def dollars(value: float | None) -> str:
    """US dollars, small amounts with four decimals; unknown is said, it is not a zero."""
    if value is None:
        return "unknown"
    return f"${value:,.2f}" if value >= 10 else f"${value:.4f}"

"""Detectors for training over episodes: what `agent2.training.online_grpo` logs beside reward and length.

format collapse            messages that are not valid, are cut off or repeat themselves take over (X11)
signal lost                groups no longer differ although the task is not solved; says what was masked (X16)
foreign tokens             the loss learns tokens that the policy did not draw
policy drift               the policy has left its initial model far behind (X19, X20)
sampler mismatch           sampler and trainer give a token different probabilities (X08)
reward without success     a part of a composite reward rises and success does not (X13)

The same promises as `detectors`. Thresholds are ours, from runs in the household world.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from agent2.monitor.series import Detector, Watched, last_step, median_before_end, recent, reference, trend_of
from agent2.monitor.signals import Danger, Signal

MESSAGES: Mapping[str, str] = MappingProxyType(
    {
        "unterminated_share": "messages that never end",
        "invalid_share": "actions that the world does not understand",
        "repeated_share": "actions that repeat the one before",
        "stutter_share": "messages that stutter",
    }
)
"""What a collapse can look like, the surest sign first."""
ENOUGH = 12
"""Batches before success can be called flat."""
_PARTS = ("reward_valid", "reward_format")
_MASKS = ("masked_capped", "masked_truncated", "masked_too_long", "masked_failed")


def format_collapse(watched: Watched) -> Signal | None:
    """One kind of bad message has risen far above its share at the start."""
    settings = watched.settings
    for name, words in MESSAGES.items():
        series = watched.log.get(name)
        start = reference(series, settings.reference) if series is not None else None
        if series is None or start is None or len(series) < settings.reference + 3:
            continue
        now = median_before_end(series, 3)
        limit = settings.unterminated_rise if name == "unterminated_share" else settings.bad_message_rise
        if now > start + limit:
            return Signal(
                Danger.FORMAT_COLLAPSE,
                int(series.steps[-1]),
                (name,),
                f"{now:.0%} of messages are {words}, {start:.0%} were at the start (limit {limit:+.0%})",
                "stop; go back to a checkpoint before the rise, lower the learning rate, weigh episodes equally",
            )
    return None


def signal_lost(watched: Watched) -> Signal | None:
    """Hardly any group has members with different rewards, and the task is not solved.

    On a hard task, where success is rare, few groups differ in a healthy run, and those teach: there it is a danger
    only if many more did before, or if none does for long.
    """
    settings = watched.settings
    series = watched.log.get("signal_share")
    name = "success" if watched.log.get("success") is not None else "reward"  # of 0 to 1, as a verifier gives it
    share, success = (recent(watched, of, settings.smoothing) for of in ("signal_share", name))
    if series is None or share is None or success is None or success >= settings.solved:
        return None
    if success >= settings.rare:
        is_lost = share < settings.signal_floor
    else:
        n = settings.signal_window
        means = np.convolve(series.values, np.full(n, 1 / n), mode="valid") if len(series) >= n else np.array([share])
        best, share = float(means.max()), float(means[-1])
        is_lost = best >= 2 * settings.signal_floor and share < min(settings.signal_floor, best / 5)
        last = series.values[-settings.signal_points :]
        is_lost |= len(last) == settings.signal_points and float(last.mean()) < settings.signal_least
    if not is_lost:
        return None
    masked = {name: recent(watched, name) or 0.0 for name in _MASKS}
    worst = max(masked, key=lambda name: masked[name])
    cause = f"; {masked[worst]:.0%} of episodes are left out ({worst})" if masked[worst] > 0.1 else ""
    return Signal(
        Danger.SIGNAL_LOST,
        last_step(watched, "signal_share"),
        ("signal_share", name, *([worst] if cause else [])),
        f"{share:.0%} of groups have members with different rewards while {name} is {success:.3g}{cause}",
        "keep failed episodes in the loss; use items that the model solves some of the time",
    )


def foreign_tokens(watched: Watched) -> Signal | None:
    """Part of the loss is on tokens that the world wrote."""
    share = recent(watched, "foreign_share", 1)
    if share is None or share <= 0:
        return None
    return Signal(
        Danger.FOREIGN_TOKENS,
        last_step(watched, "foreign_share"),
        ("foreign_share",),
        f"{share:.0%} of the tokens in the loss were not drawn by the policy",
        "mask observations: hand the trainer the mask of drawn tokens",
    )


def policy_drift(watched: Watched) -> Signal | None:
    """The divergence from the initial model, or from the reference policy, is above its limit."""
    limits = (
        ("kl_initial", "initial model", watched.settings.drift_limit),
        ("kl", "reference", watched.settings.kl_limit),
    )
    for name, of, limit in limits:
        drift = recent(watched, name)
        if drift is not None and drift > limit:
            return Signal(
                Danger.POLICY_DRIFT,
                last_step(watched, name),
                (name,),
                f"the policy is {drift:.3g} nats a token from the {of}, the limit is {limit:g}",
                "give the KL term weight, lower the learning rate or stop earlier; check what the model lost elsewhere",
            )
    return None


def sampler_mismatch(watched: Watched) -> Signal | None:
    """Sampler and trainer differ on the probability of the same token, three batches in a row."""
    series = watched.log.get("logprob_gap")
    limit = watched.settings.logprob_gap
    if series is None or len(series) < 3 or not (series.values[-3:] > limit).all():
        return None
    return Signal(
        Danger.SAMPLER_MISMATCH,
        int(series.steps[-1]),
        ("logprob_gap",),
        f"sampler and trainer differ by up to {series.values[-1]:.2g} nats on one token, the limit is {limit:g}",
        "compare dtype, attention implementation, temperature and the moment at which weights are handed over",
    )


def reward_without_success(watched: Watched) -> Signal | None:
    """A part of a composite reward goes up since the start, success does not."""
    series, success = watched.log.get("success"), trend_of(watched, "success", since_start=True)
    p = watched.settings.trend_p
    if series is None or len(series) < ENOUGH or success is None:
        return None
    if success.end - success.start > watched.settings.flat_success:
        return None
    for name in _PARTS:
        part = trend_of(watched, name, since_start=True)
        if part is not None and part.rises(p):
            return Signal(
                Danger.REWARD_WITHOUT_SUCCESS,
                last_step(watched, name),
                (name, "success"),
                f"{name} rose from {part.start:.3g} to {part.end:.3g}, success went from {success.start:.3g} to "
                f"{success.end:.3g}",
                "reward the outcome only: what can be had without success will be had without success",
            )
    return None


DETECTORS: Mapping[Danger, Detector] = MappingProxyType(
    {
        Danger.FORMAT_COLLAPSE: format_collapse,
        Danger.SIGNAL_LOST: signal_lost,
        Danger.FOREIGN_TOKENS: foreign_tokens,
        Danger.POLICY_DRIFT: policy_drift,
        Danger.SAMPLER_MISMATCH: sampler_mismatch,
        Danger.REWARD_WITHOUT_SUCCESS: reward_without_success,
    }
)
NEEDS: Mapping[Danger, Sequence[str]] = MappingProxyType(
    {
        Danger.FORMAT_COLLAPSE: (" or ".join(MESSAGES),),
        Danger.SIGNAL_LOST: ("signal_share", "success or reward"),
        Danger.FOREIGN_TOKENS: ("foreign_share",),
        Danger.POLICY_DRIFT: ("kl_initial or kl",),
        Danger.SAMPLER_MISMATCH: ("logprob_gap",),
        Danger.REWARD_WITHOUT_SUCCESS: (" or ".join(_PARTS), "success"),
    }
)

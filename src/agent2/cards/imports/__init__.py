"""Logs of other harnesses read into rollout cards, so that they can be regraded, compared and queried like ours."""

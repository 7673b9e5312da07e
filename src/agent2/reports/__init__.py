"""What people look at: pages and figures of trials, sweeps, leaderboards, evaluations and monitored runs.

Everything an agent wrote (notes, logs, file names, metric names) is hostile input: it passes `text.clean` and the
escaping of the output format before it reaches a page.
"""

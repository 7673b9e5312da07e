"""The recorder: code revisions, processes and training metrics, watched from outside the sandbox.

All that it reads was written by the agent, so it is evidence and never state: files are opened without
following links, reads are capped, and nothing that it finds can change a score.
"""

"""Import of other harnesses' logs into rollout cards, so that they can be regraded, compared and queried.

Promises: nothing is invented. What the log does not state and a card's header needs is listed in the card's lock under
`assumed`; a sample without a verdict is a missing score with the reason that the log gives. Thought and answer are told
apart as in an evaluation (`llm.thoughts`); a stored score stays as it is.

`formats` has the table of what can be read, one module each; every reader returns a `ForeignLog`.
"""

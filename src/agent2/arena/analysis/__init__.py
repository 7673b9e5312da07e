"""What an agent did in its trial, and how that went: records in, verdicts out.

`read.read_evidence` turns a trial's folder into `arena.evidence.TrialEvidence`; `result.analyse` turns that
into `verdicts.Analysis`. Everything between is a pure function: the same evidence gives the same analysis, no
model is asked, and no number comes from what an agent claims about itself.
"""

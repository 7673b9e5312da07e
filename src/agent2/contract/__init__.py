"""The evaluation contract: suites, protocol, evidence, gates and the release decision; pure, no model needed."""

from agent2.arena.paths import TrialPaths
from agent2.arena.workspace import clear_unstarted


def test_what_a_harness_left_that_died_before_the_agent_was_recorded_is_cleared_and_scores_are_kept(tmp_path):
    paths = TrialPaths(tmp_path)
    for folder in (paths.workspace / "output", paths.snapshot(1), paths.revisions_git, paths.root / "cards"):
        folder.mkdir(parents=True)
    paths.grader_db.write_text("a submission of an agent that is not known to have been started")
    paths.events.mkdir()
    for log in (paths.revisions_log, paths.processes_log, paths.trial_log):
        log.write_text("{}\n")
    clear_unstarted(paths)
    clear_unstarted(paths)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cards", "events"]
    assert [path.name for path in paths.events.iterdir()] == ["trial.jsonl"]

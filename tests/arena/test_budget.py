from agent2.arena.agent_phase import Deadline


def test_what_remains_falls_to_zero_and_no_further():
    now = [100.0]
    deadline = Deadline(started_at=100.0, wall_clock_s=60.0, clock=lambda: now[0])
    assert (deadline.ends_at, deadline.remaining(), deadline.is_over) == (160.0, 60.0, False)
    now[0] = 160.0
    assert (deadline.remaining(), deadline.is_over) == (0.0, True)
    now[0] = 1000.0
    assert deadline.remaining() == 0.0

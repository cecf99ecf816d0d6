"""Killed at random moments while it saves, a process leaves the old file or the new one, whole."""

from killed_saves import killed_saves

KILLS = 8  # `make soak` has a thousand


def test_killed_saves_leave_the_old_file_or_the_new_one_and_no_litter_after_the_next(tmp_path):
    results, files = killed_saves(tmp_path, KILLS)
    assert len(results) == KILLS
    assert files == ["m.h5", "m.keras", "m.weights.h5", "w.h5"]
    for name, values, _ in results:
        assert values in ([1.0], [2.0]), (name, values)  # all weights and slots of one save, none of the other
    assert {left for _, _, left in results} <= {0, 1}  # each save takes away what the killed one before it has left
    killed_in_a_save = sum(left for _, _, left in results)
    assert killed_in_a_save >= KILLS // 4  # the moments were not all between two saves

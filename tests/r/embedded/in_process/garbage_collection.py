"""120 calls between Python and R with both garbage collectors at work. Run by `tests/r/embedded/test_embedded_r.py`."""

import gc
import re
from pathlib import Path

import numpy as np
from equality import ONE_CALL, dense_model, measured, random_rows

from multigpu.embedded_r import call, run

X, Y = random_rows(16, 3), random_rows(16, 2)


def test_120_calls_in_turn_with_both_collectors_leave_memory_as_it_is():
    model = dense_model()
    model.compile(**measured())
    in_r = run("function(model, x) { seen <- list(model$layers, model$get_weights()); predict_on_batch(model, x) }")
    gc.freeze()  # what is there now is not looked at again, which makes a collection fast
    grown = []
    for turn in range(120):
        np.testing.assert_allclose(in_r(model, X), model.predict_on_batch(X), **ONE_CALL)
        view = run("matrix(runif(1e5), 100)")  # 0.8 MB, freed by R once Python has let it go
        call("gc", full=turn % 10 == 0)
        assert view.shape == (100, 1000)
        assert call("identity", model) is model
        del view
        gc.collect()
        if turn % 40 == 39:
            model.train_on_batch(X, Y)
            grown.append(resident_megabytes())
    # the view alone, if it leaked, would add 32 MB from one note to the next
    assert grown[-1] - grown[0] < 20, grown


def test_references_dropped_in_r_are_freed_in_python():
    freed = []

    class Watched:
        def __del__(self):
            freed.append(1)

    for _ in range(50):
        call("identity", [Watched(), Watched()])
    run("x <- NULL; for (i in 1:3) gc()")
    gc.collect()
    assert len(freed) == 100


def resident_megabytes() -> float:
    gc.collect()
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text()).group(1)) / 1024

"""A separate process that copies an untrusted file, and builds the model in it for the first time.

The HDF5 library crashes or runs for ever on some damaged files, and a few words of a configuration can require any
amount of time and memory. Here that happens in a process that may be lost, within limits. It is started as a script,
and imports this package after it has read where the caller found it.
"""

import json
import os
import resource
import sys
import types
from typing import Any

# Keras imports these if they are installed, which takes half of its time
NOT_NEEDED = {"sklearn", "matplotlib", "pandas", "jax", "tensorflow", "torch"}


def main(source: str, target: str, budget: int, path: list[str], package: str, trial: dict[str, Any] | None) -> int:
    """Copy, try, and report failures on stdout, line by line. Return 0 if nothing fails."""
    sys.path[:] = path
    parent = sys.modules["multigpu"] = types.ModuleType("multigpu")  # its `__init__` would join workers
    parent.__path__ = [package]
    from multigpu.saving.sandboxed_copy import copy_file

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(os.dup(1), "w") as stdout:
        os.dup2(2, 1)  # keeps the warnings of libraries out of the report
        answer = copy_file(source, target, budget)
        if not answer and trial is not None:
            stdout.write(json.dumps({"stage": "trial"}) + "\n")
            stdout.flush()  # it may never answer
            answer = try_model(source, target, trial)
        stdout.write(json.dumps(answer) + "\n")
    return int(bool(answer))


def try_model(source: str, copy: str, trial: dict[str, Any]) -> dict[str, Any]:
    """Build the model in a copy. Return why that fails."""
    from multigpu.saving.process_limits import lift_limits

    lift_limits()
    backend = trial["backend"]
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", JAX_PLATFORMS="cpu", KERAS_BACKEND=backend)
    unneeded = NOT_NEEDED - {backend} - {*sys.modules}
    sys.modules.update(dict.fromkeys(unneeded))  # type: ignore[arg-type]  # None: importing one is an ImportError
    from multigpu.saving.sandboxed_build import Trial

    return Trial(**trial).run(copy, source)


if __name__ == "__main__":
    sys.exit(main(**json.loads(sys.argv[1])))

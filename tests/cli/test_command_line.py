"""`python -m multigpu`: it reads well, misuse is told on stderr with exit code 2, scripts run as they are."""

import dataclasses
import json
import os
import platform
import re
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

import multigpu
from multigpu.cli import run
from multigpu.cli.answers import LOG_LEVEL, quiet_start
from multigpu.cli.main import COMMANDS, main
from multigpu.cli.option_names import as_options
from multigpu.engines.tensorflow.devices.gpu_table import device_table
from multigpu.plan.gpu_table import seen_devices


def misuse(capsys, *words):
    with pytest.raises(SystemExit) as error:
        main(words)
    assert error.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


def started(folder, *words):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "multigpu", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


HELP_AND_MISUSE = [
    ([], 2),
    (["--help"], 0),
    *([[name, "--help"], 0] for name in COMMANDS),
    (["walk"], 2),
    (["run"], 2),
    (["run", "not_there.py"], 2),
    (["run", "--simulate", "0", "train.py"], 2),
    (["launch", "--processes", "-1", "train.py"], 2),
    (["launch", "train.py"], 2),
    (["devices", "all"], 2),
    (["estimate", "none.keras"], 2),
    (["measure", "train.py", "--gpus", "0"], 2),
]


@pytest.mark.parametrize(("words", "code"), HELP_AND_MISUSE, ids=lambda x: " ".join(x) if isinstance(x, list) else None)
def test_help_and_misuse_are_answered_without_tensorflow(words, code, tmp_path):
    (tmp_path / "train.py").touch()
    for package in ("tensorflow", "keras", "numpy"):
        (tmp_path / f"{package}.py").write_text("raise AssertionError('imported')")
    config = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'
    environment = {**os.environ, "TF_CONFIG": config, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "multigpu", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr if code == 0 else done.stdout) == (code, "")
    assert (done.stdout or done.stderr).startswith("usage: ")


@pytest.mark.parametrize("words", [[], *[[name] for name in COMMANDS]])
def test_help_names_every_command_and_argument(words, capsys):
    with pytest.raises(SystemExit) as error:
        main([*words, "--help"])
    assert error.value.code == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"usage: python -m multigpu {' '.join(words)}".rstrip())
    expected = {
        "run": ["--simulate N", "script", "args", "exit code"],
        "launch": ["--processes N", "--hosts A,B", "--rank RANK", "script", "workers"],
        "devices": ["CUDA_VISIBLE_DEVICES", "--at-least N", "--json", "status: 0"],
        "estimate": [
            "--gpus GPUS",
            "--batch-size N",
            "--optimizer NAME",
            "--fits SIZE",
            "--json",
            "MODEL",
            "status: 0",
        ],
        "measure": ["--gpus GPUS", "--loss NAME", "--steps N", "--at-least X", "--json", "MODEL", "status: 0"],
    }
    for word in expected[words[0]] if words else [*COMMANDS, "Train Keras models on several GPUs."]:
        assert word in out


@pytest.mark.quick
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["walk"], "invalid choice: 'walk'"),
        (["run"], "the following arguments are required: script"),
        (["run", "none.py"], "expected the path of a script, received 'none.py', which is not a file"),
        (["launch"], "the following arguments are required: script"),
        (["launch", "--processes", "2"], "the following arguments are required: script"),
        (
            ["launch", "--processes", "2", "none.py"],
            "expected the path of a script, received 'none.py', which is not a file",
        ),
        (["launch", "--processes", "2", "/"], "expected the path of a script, received '/', which is not a file"),
        (["launch", __file__], "Expected `--processes N` for workers on this machine"),
        (["launch", "--rank", "0", __file__], "Expected `--processes N` for workers on this machine"),
        (["launch", "--hosts", "a,b", __file__], "Expected `--processes N` for workers on this machine"),
        (["launch", "--hosts", "a,b", "--rank", "2", __file__], "Received: hosts=['a', 'b'], rank=2."),
        (["launch", "--hosts", "", "--rank", "0", __file__], "Expected hosts as host or host:port"),
        (["launch", "--hosts", "a:99999,b", "--rank", "0", __file__], "Received: 'a:99999' in hosts="),
        (["launch", "--processes", "2", "--rank", "0", __file__], "Expected either `--processes N`"),
        (["launch", "--processes", "2", "--hosts", "a,b", __file__], "Expected either `--processes N`"),
        (["devices", "now"], "unrecognized arguments: now"),
        (["devices", "--at-least", "0"], "--at-least: expected a whole number from 1 to 256, received '0'"),
        (["estimate"], "the following arguments are required: MODEL"),
        (["estimate", "none.keras"], "argument MODEL: expected the path of a model, received 'none.keras'"),
        (["measure", "/"], "argument MODEL: expected the path of a model, received '/', which is not a file"),
        (["estimate", __file__, "--gpus", "0"], "--gpus: expected a whole number from 1 to 1024, received '0'"),
        (["estimate", __file__, "--gpus", "0,"], "--gpus: expected a number, ids or names of GPUs, such as 8 or 0,2"),
        (["estimate", __file__, "--gpus", "[0, 1]"], "or GPU:0,GPU:1, received '[0, 1]'"),
        (["estimate", __file__, "--batch-size", "1e3"], "--batch-size: expected a whole number from 1 to 999999999"),
        (["estimate", __file__, "--fits", "24G"], "--fits: expected a size such as 24GB"),
        (["estimate", __file__, "--fits", "0GB"], "which is 24,000,000,000 bytes, or 22.5GiB, received '0GB'"),
        (["measure", __file__, "--at-least", "-1"], "--at-least: expected a number above 0, such as 1.5"),
        (["measure", __file__, "--at-least", "0"], "such as 1.5, received '0'"),
    ],
)
def test_misuse_is_told_on_stderr_with_exit_code_2(words, told, capsys):
    err = misuse(capsys, *words)
    assert err.startswith("usage: python -m multigpu")
    assert told in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "--simulate"], "--simulate: expected a whole number from 1 to 256"),
        (["launch", "--processes"], "--processes: expected a whole number from 1 to 256"),
        (["launch", "--hosts", "a,b", "--rank"], "--rank: expected a whole number from 0 to 99999"),
    ],
)
def test_what_is_no_number_or_too_large_is_refused(words, told, capsys):
    for word in (
        "none",
        "-1",
        "1.5",
        "9" * 30,
        "100000",
        "²",
        "",
        " 2",
        "+2",
        *([] if "--rank" in words else ["0", "257"]),
    ):
        assert f"{told}, received {word!r}" in misuse(capsys, *words, word, __file__)


def test_a_script_in_r_without_r_is_refused(capsys, monkeypatch, tmp_path):
    (tmp_path / "train.R").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    err = misuse(capsys, "launch", "--processes", "2", str(tmp_path / "train.R"))
    assert "Expected `Rscript` on the PATH for a script in R." in err


SCRIPT = """
import sys, os, pickle
class Here:
    pass
if __name__ == "__main__":
    print(sys.argv, os.path.basename(sys.path[0]), os.path.basename(__file__), sys.modules["__main__"].Here is Here)
    print(type(pickle.loads(pickle.dumps(Here()))) is Here)
    import beside
    def fails():
        raise RuntimeError(beside.WHAT)
    fails()
"""


def test_a_script_finds_its_arguments_and_neighbours_and_its_traceback_is_its_own(tmp_path):
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "beside.py").write_text("WHAT = 'its own error'")
    done = started(tmp_path, "run", "scripts/train.py", "--simulate", "3", "-x")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "['scripts/train.py', '--simulate', '3', '-x'] scripts train.py True",
        "True",
    ]
    trace = done.stderr[done.stderr.index("Traceback") :]
    assert re.findall(r'File "([^"]*)"', trace) == ["scripts/train.py"] * 2
    assert trace.endswith("RuntimeError: its own error\n")


def test_a_script_with_an_error_of_syntax_is_shown_as_python_shows_it(tmp_path, monkeypatch, capsys):
    script = tmp_path / "old.py"
    script.write_text("print 'of Python 2'\n")
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    assert run.run_script(script, []) == 1
    err = capsys.readouterr().err
    assert run.__file__ not in err  # no line of this package
    assert "SyntaxError: Missing parentheses in call to 'print'" in err


def test_devices_prints_why_there_are_none_and_versions_for_an_issue(tmp_path):
    done = started(tmp_path, "devices")
    assert done.returncode == 0
    *answer, versions = done.stdout.splitlines()
    assert versions.startswith(f"multigpu {multigpu.__version__}, Python {platform.python_version()}, ")
    assert f"keras {keras.__version__}, tensorflow {tf.__version__}" in versions
    assert answer == [
        "No GPU: CUDA_VISIBLE_DEVICES='-1' hides all GPUs. Unset it, or set it to the numbers of those to use.",
        "CUDA_VISIBLE_DEVICES='-1'",
    ]


@pytest.mark.parametrize(
    ("words", "level"), [(["devices"], {LOG_LEVEL: "3"}), (["estimate", "small.keras", "--gpus", "2"], {})]
)
def test_nothing_of_tensorflows_log_stands_before_the_answer(words, level, tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save(tmp_path / "small.keras")
    environment = {name: value for name, value in os.environ.items() if name != LOG_LEVEL} | level
    command = [sys.executable, "-m", "multigpu", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_user_may_ask_for_the_log(capfd, monkeypatch):
    monkeypatch.setenv(LOG_LEVEL, "0")
    with quiet_start():
        os.write(2, b"the log\n")
    assert capfd.readouterr().err == "the log\n"


@pytest.mark.parametrize(("error", "shown"), [(ValueError("wrong word"), False), (RuntimeError("no start"), True)])
def test_the_hidden_log_is_shown_if_the_start_fails(error, shown, capfd, monkeypatch):
    monkeypatch.delenv(LOG_LEVEL, raising=False)

    def start():
        with quiet_start():
            os.write(2, b"the log\n")
            raise error

    with pytest.raises(type(error)):
        start()
    os.write(2, b"after\n")
    assert capfd.readouterr().err == ("the log\nafter\n" if shown else "after\n")


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as error:
        main(["--version"])
    assert error.value.code == 0
    assert capsys.readouterr().out == f"multigpu {multigpu.__version__}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "Expected each device once in `gpus`. Received: gpus=[2, 2].",
            "Expected each device once in `--gpus`. Received: --gpus 2,2.",
        ),
        (
            "Use `optimizer='adam'`, or None for the model's own.",
            "Use `--optimizer adam`, or leave it out for the model's own.",
        ),
        ("Expected `gpus` to be None, a whole number of GPUs.", "Expected `--gpus` to be a whole number of GPUs."),
        (
            "Expected `batch_size` to be 1 or more. Received: batch_size=0",
            "Expected `--batch-size` to be 1 or more. Received: --batch-size 0",
        ),
        ("Received: 'gpus.keras', which is not a zip archive.", "Received: 'gpus.keras', which is not a zip archive."),
    ],
)
def test_errors_name_the_options_of_the_command_line(text, told):
    assert as_options(text) == told


def test_devices_answer_in_json_and_whether_there_are_so_many(capsys):
    assert main(["devices", "--json", "--at-least", "8"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["devices"] == [dataclasses.asdict(row) for row in device_table()]
    assert (told["why_none"], told["enough"]) == (None, True)
    assert told["cuda_visible_devices"] == os.environ.get("CUDA_VISIBLE_DEVICES")
    assert main(["devices", "--at-least", "9"]) == 1
    assert capsys.readouterr().out.startswith(f"{device_table()}\n{seen_devices()}\nmultigpu ")
    assert main(["devices", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["enough"] is None


def test_devices_that_tensorflow_does_not_start_are_an_error_of_one_line_and_status_2(capsys, monkeypatch):
    def refuse():
        raise tf.errors.InternalError(None, None, "no driver\nfor this card")

    monkeypatch.setattr(tf.config, "list_logical_devices", refuse)
    with pytest.raises(SystemExit, match="2"):
        main(["devices"])
    assert capsys.readouterr().err == "python -m multigpu devices: error: no driver for this card\n"


@pytest.mark.quick
def test_devices_are_shown_as_a_table_with_the_names_that_gpus_takes(capsys):
    assert main(["devices"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "id   name  physical device  memory total  memory free",
        " 0  CPU:0            CPU:0             -            -",
    ]
    assert len(lines) == 1 + 8 + 2
    assert lines[-2].startswith("CUDA_VISIBLE_DEVICES=")

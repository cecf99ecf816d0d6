"""`python -m multigpu launch` starts workers with a TF_CONFIG each, and ends with the status of the first to fail."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from multigpu.cli import launch
from multigpu.cli.main import main
from multigpu.cluster.config import described


def test_the_launcher_writes_a_tf_config_that_is_read():
    clusters = [described({"TF_CONFIG": text}) for text in launch.local_configs(3)]
    assert [cluster.number for cluster in clusters] == [0, 1, 2]
    assert len({cluster.addresses for cluster in clusters}) == 1


def run(script, *words):
    return main(["launch", *words, str(script)])


def test_every_process_gets_its_own_tf_config_and_a_line_says_who_can_reach_it(tmp_path, capfd):
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, pathlib\n"
        "index = json.loads(os.environ['TF_CONFIG'])['task']['index']\n"
        f"pathlib.Path({str(tmp_path)!r}, f'was-{{index}}').touch()\n"
    )
    assert run(script, "--processes", "2") == 0
    assert re.fullmatch(r"multigpu: each worker listens on all network interfaces, .*\n", capfd.readouterr().err)
    assert sorted(path.name for path in tmp_path.glob("was-*")) == ["was-0", "was-1"]


def test_nothing_is_said_of_a_worker_that_is_alone_and_does_not_listen(tmp_path, capfd):
    script = tmp_path / "script.py"
    script.touch()
    assert run(script, "--processes", "1") == run(script, "--hosts", "a", "--rank", "0") == 0
    assert capfd.readouterr().err == ""


def test_the_status_is_that_of_the_worker_that_failed_and_nobody_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "LEFT_SECONDS", 0.1)
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, sys, time\n"
        "time.sleep(600) if json.loads(os.environ['TF_CONFIG'])['task']['index'] else sys.exit(7)\n"
    )
    assert run(script, "--processes", "2") == 7


def test_the_status_is_that_of_the_worker_that_failed_when_all_have_ended_at_once():
    workers = [subprocess.Popen([sys.executable, "-S", "-c", f"raise SystemExit({status})"]) for status in (0, 7)]
    for worker in workers:
        worker.wait()
    assert launch._wait(workers) == 7


def test_a_worker_that_a_signal_has_ended_has_the_status_that_a_shell_gives_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert run(script, "--processes", "1") == 128 + 9


def test_a_worker_may_save_when_it_is_told_to_end(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import pathlib, signal, sys, time\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "def save(*_):\n"
        "    time.sleep(1)\n"
        "    (folder / 'saved').touch()\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "(folder / 'began').touch()\n"
        "time.sleep(600)\n"
    )
    launcher = subprocess.Popen([sys.executable, "-m", "multigpu", "launch", "--processes", "1", str(script)])
    while not (tmp_path / "began").exists():
        assert launcher.poll() is None
        time.sleep(0.1)
    launcher.terminate()
    assert launcher.wait(60) == 128 + signal.SIGTERM
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("options", [["--hosts", "a,b", "--rank", "0"], ["--processes", "2"]], ids=" ".join)
def test_a_signal_to_the_launcher_reaches_its_workers(options, number, tmp_path):
    """SIGTERM and SIGHUP end them. Ctrl-C, which a terminal sends to all, lets them end by themselves."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, pathlib, sys, time\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "try:\n"
        "    (folder / f'began-{os.getpid()}').touch()\n"
        "    time.sleep(600)\n"
        "except KeyboardInterrupt:\n"
        "    time.sleep(1)\n"
        "    (folder / f'saved-{os.getpid()}').touch()\n"
    )
    command = [sys.executable, "-m", "multigpu", "launch", *options, str(script)]
    launcher = subprocess.Popen(command, start_new_session=True)
    workers = 2 if "--processes" in options else 1
    while len(began := list(tmp_path.glob("began-*"))) < workers:
        assert launcher.poll() is None
        time.sleep(0.1)
    os.killpg(launcher.pid, number) if number == signal.SIGINT else launcher.send_signal(number)
    assert launcher.wait(60) == (0 if number == signal.SIGINT else 128 + number)
    assert len(list(tmp_path.glob("saved-*"))) == (workers if number == signal.SIGINT else 0)
    for path in began:
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.name.removeprefix("began-")), 0)

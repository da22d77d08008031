"""The command `forerun` of the wheel: it does what the binary does."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import forerun

SCRIPT = [str(Path(sysconfig.get_path("scripts"), "forerun"))]
MODULE = [sys.executable, "-m", "forerun"]
QUICK = "workload:streams,n=2,each=1M"
LONG = ["sim", "check", "--seeds", "1000000000"]

each_way = pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line `words` to its end."""
    return subprocess.run(
        words, capture_output=True, check=False, stdin=subprocess.DEVNULL, text=True
    )


@each_way
def test_it_tells_its_version(command: list[str]) -> None:
    ended = run(*command, "--version")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == f"forerun {forerun.version()}\n"


@each_way
@pytest.mark.parametrize(
    ("words", "status"),
    [(["--no-such"], 2), (["no-such"], 2), (["vectors", "/no/such/file"], 1)],
)
def test_a_refusal_is_one_line_and_a_status(
    command: list[str], words: list[str], status: int
) -> None:
    ended = run(*command, *words)
    assert (ended.returncode, ended.stdout) == (status, "")
    assert ended.stderr.startswith("forerun: ") and ended.stderr.count("\n") == 1


def test_it_prints_results() -> None:
    ended = run(*MODULE, "sim", QUICK, "--device", "t7k250", "--json")
    assert ended.returncode == 0, ended.stderr
    assert isinstance(json.loads(ended.stdout), dict)


def test_a_word_need_not_be_text() -> None:
    name = b"/no/such/\xff"
    ended = subprocess.run([*MODULE, "vectors", name], capture_output=True, check=False)
    assert ended.returncode == 1
    assert b"cannot read /no/such/" in ended.stderr


@each_way
def test_an_interrupt_ends_it(command: list[str]) -> None:
    words = [*command, *LONG]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            while not has_command_thread(child.pid):
                assert child.poll() is None, "it ended before it was interrupted"
            os.kill(child.pid, signal.SIGINT)
            _, told = child.communicate(timeout=60)
        finally:
            child.kill()
    assert child.returncode == 130
    assert told.decode().splitlines()[0] == "forerun: interrupted"


def has_command_thread(pid: int) -> bool:
    """Whether the command waits for signals, which a thread of that name does."""
    names = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/comm")]
    return "ctrl-c\n" in names

"""OpenCode, the real program, with rigd's file: PROGRAMS URL RIG FOLDER QUESTION..., each a conversation."""

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def main(programs: str, url: str, rig: str, folder: str, *questions: str) -> None:
    """Ask each question; the folder is its home, so that its prompts are alike from run to run."""
    home, work = Path(folder), Path(folder) / "work"
    work.mkdir(parents=True, exist_ok=True)
    environ = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(home),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    words = [sys.executable, "-m", "rigd.cli.main", "clients", "opencode", rig, "--offline", "--yes"]
    own = {**environ, "PYTHONPATH": str(PROJECT)}
    subprocess.run([*words, "--host", url, "--write", str(home / ".config/opencode")], env=own, check=True)
    for question in questions:
        subprocess.run(
            ["opencode", "run", question],
            env=environ,
            cwd=work,
            stdin=subprocess.DEVNULL,
            timeout=150,
            check=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])

"""OpenCode, the real program, with rigd's file: PROGRAMS URL RIG FOLDER QUESTION..., each a conversation.

The project that it works in has an AGENTS.md as people's have them, which makes its prompt as long as theirs.
"""

import os
import subprocess
import sys
from pathlib import Path

import agent_client

PROJECT = Path(__file__).resolve().parents[2]
RULES = 300
"""Lines of the AGENTS.md."""


def main(programs: str, url: str, rig: str, folder: str, *questions: str) -> None:
    """Ask each question; the folder is its home, so that its prompts are alike from run to run."""
    home, work = Path(folder), Path(folder) / "work"
    work.mkdir(parents=True, exist_ok=True)
    (work / "AGENTS.md").write_text("\n".join(agent_client.RULES.splitlines()[:RULES]) + "\n")
    environ = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(home),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        **({"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}),
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

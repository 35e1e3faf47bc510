"""Writes said.json: what ansible-playbook says when it runs site.yml, in order."""

import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    """Run the playbook and keep its messages."""
    program = Path(sys.executable).with_name("ansible-playbook")
    argv = [str(program), "-c", "local", "-i", "box,", "site.yml"]
    done = subprocess.run(argv, check=True, cwd=HERE, capture_output=True, text=True, timeout=300)
    said = re.findall(r'^    "msg": (".*")$', done.stdout, re.MULTILINE)
    (HERE / "said.json").write_text(json.dumps([json.loads(text) for text in said], indent=1) + "\n")


main()

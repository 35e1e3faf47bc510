"""Computes expressions.json anew with ansible-core itself (2.19 or newer): `python make_expressions.py`.

Each expression of expressions.yml is filled in by Ansible's own engine; the value stands in brackets, so that null is
one, too. An expression that fails there has no brackets, only null. A condition is true, false, or null if it fails.
The test compares with what rigd makes of them.
"""

import json
import sys
from pathlib import Path

from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar, trust_as_template

HERE = Path(__file__).parent


def main() -> None:
    """Write expressions.json."""
    init_plugin_loader()
    loader = DataLoader()
    given = loader.load_from_file(str(HERE / "expressions.yml"), trusted_as_template=True)
    templar = Templar(loader, variables={**given["variables"], "vars": given["variables"]})
    found = []
    for text in given["expressions"]:
        try:
            value = [templar.template(trust_as_template(str(text)))]
            plain = json.loads(json.dumps(value))
        except Exception as error:  # noqa: BLE001  (that it fails is the answer)
            sys.stderr.write(f"fails: {text!r}: {str(error)[:150]}\n")
            plain = None
        found.append({"expression": str(text), "value": plain})
    for text in given["conditions"]:
        try:
            holds = templar.evaluate_conditional(trust_as_template(str(text)))
        except Exception:  # noqa: BLE001  (that it fails is the answer)
            holds = None
        found.append({"condition": str(text), "value": holds})
    (HERE / "expressions.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


main()

"""Rig files that are wrong: one data file and its expected text a case. To add one, add both files.

`wrong-*` cannot be read as a rig; `version-wrong-*` asks its version of vLLM for what it does not know;
`warning-*` is told of, and goes by.
"""

from pathlib import Path

import pytest

from rigd.engine.versions import version_findings
from rigd.errors import ExitCode, RigdError, explain
from rigd.rig.findings import errors
from rigd.rig.load import MOST_BYTES, LoadedRig, load

DATA = Path(__file__).parents[1] / "data/rig"
MINIMAL = 'name: box\nengine: {runtime: process, version: "0.32.0", model: org/model}\n'


def cases(pattern: str) -> list[object]:
    """Return each data file as a parameter with its name as id."""
    found = sorted(DATA.glob(pattern))
    assert found
    return [pytest.param(path, id=path.stem) for path in found]


def said(path: Path) -> str:
    """Return what a file is refused or warned with, its own path shortened."""
    try:
        loaded = load(path, environ={})
        findings = version_findings(loaded.rig)
        if wrong := errors(findings):
            raise loaded.refusal(wrong)
        text = "\n".join(f"{loaded.place(item.key)}: {item}" for item in (*loaded.warnings, *findings))
    except RigdError as error:
        text = explain(error) if error.exit_code is ExitCode.USAGE else "not told as a wrong file"
    return text.replace(str(path), "FILE")


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a rig file and returns its path."""

    def write(text: str | bytes, name: str = "rig.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


@pytest.mark.parametrize(
    "path", [*cases("wrong-*.yaml"), *cases("version-wrong-*.yaml"), *cases("warning-*.yaml")]
)
def test_each_mistake_is_told_with_its_line_and_key(path):
    expected = path.with_suffix(".txt").read_text().rstrip("\n")

    assert said(path) == expected


@pytest.mark.parametrize("path", cases("wrong-secret-*.yaml"))
def test_a_secret_in_the_file_is_never_repeated(path):
    assert "5f2a90" not in said(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RigdError, match=r"cannot read the rig file '.*/none.yaml': it does not exist"):
        load(tmp_path / "none.yaml")


def test_a_folder_is_no_rig_file(tmp_path):
    with pytest.raises(RigdError, match="it is a folder"):
        load(tmp_path)


def test_a_huge_file_is_refused_without_reading_it_all(write):
    with pytest.raises(RigdError, match="larger than 1024 KiB"):
        load(write(b"#" * (MOST_BYTES + 1)))


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    path = tmp_path / "rig.yaml"
    path.symlink_to(path)

    with pytest.raises(RigdError, match="Too many levels of symbolic links"):
        load(path)


def test_windows_line_ends_and_a_byte_order_mark_are_fine(write):
    assert load(write(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())).rig.name == "box"


def test_anchors_and_merges_are_followed(write):
    text = MINIMAL + (
        "channels:\n  - &coder {name: coder, context: 1000, output: 100}\n  - {<<: *coder, name: other}\n"
    )

    rig = load(write(text)).rig

    assert [(channel.name, channel.context) for channel in rig.channels] == [("coder", 1000), ("other", 1000)]


def test_names_are_expanded_in_paths_and_only_there(write):
    text = (
        'name: box\nengine: {runtime: process, version: "0.32.0", model: "${LAB}/tiny",'
        ' served_model_name: "${LAB}", process: {executable: ["${BIN:-/opt/vllm}", serve]}}\n'
    )

    engine = load(write(text), environ={"LAB": "/lab"}).rig.engine

    assert (engine.model, engine.served_model_name) == ("/lab/tiny", "${LAB}")
    assert engine.process is not None
    assert engine.process.executable == ("/opt/vllm", "serve")


def test_files_of_prefixes_begin_at_the_rig_file(write, tmp_path):
    text = MINIMAL + "prefixes:\n  - {name: a, files: [p/one.md, ~/two.md, /three.md]}\n"

    prefix = load(write(text), environ={}, home=Path("/home/me")).rig.prefixes[0]

    assert prefix.files == (str(tmp_path / "p/one.md"), "/home/me/two.md", "/three.md")


def test_the_engine_digest_changes_with_the_engine_only(write):
    def digest(text: str) -> str:
        loaded: LoadedRig = load(write(text))
        return loaded.engine_digest

    first = digest(MINIMAL)

    assert digest(MINIMAL + "supervision: {attempts: 9}\n") == first
    assert digest(MINIMAL.replace("org/model", "org/other")) != first

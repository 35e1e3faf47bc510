"""Evidence beside the log, order of causes, prefixes of every kind, several starts, sizes, and the command."""

import gzip
import json

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from rigd.cli.classify import bounded_lines, classify
from rigd.errors import UsageError
from rigd.supervise.classify import Retry, diagnose
from rigd.supervise.rules import RULES
from rigd.supervise.rules.model import Weight

KV_SMALL = (
    "ValueError: To serve at least one request with the model's max seq len (262144), (16.00 GiB KV cache is"
    " needed, which is larger than the available KV cache memory (2.12 GiB). Based on the available memory,"
    " the estimated maximum model length is 34736."
)
IMA = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 38.00 MiB. GPU 1 has a total capacity of"
    " 23.57 GiB of which 14.69 MiB is free."
)
READY = "(APIServer pid=1) INFO:     Application startup complete."
ARGUMENTS = "(APIServer pid=1) INFO 11-30 02:31:02 [utils.py:233] non-default args: {'max_num_seqs': 10}"
DEAD = (
    "(APIServer pid=1) ERROR 11-30 02:33:12 [async_llm.py:525] vllm.v1.engine.exceptions.EngineDeadError:"
    " EngineCore encountered an issue. See stack trace (above) for the root cause."
)
LINES = {
    "kv_small": KV_SMALL,
    "ima_other": IMA,
    "bad_cli": "vllm: error: unrecognized arguments: --nonsense",
    "oom_sampler_warmup": "RuntimeError: CUDA out of memory occurred when warming up sampler with 10 dummy requests.",
    "mamba_seqs": "ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (161).",
    "weights_corrupt": "SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
    "gpu_lost": "NVRM: Xid (PCI:0000:0a:00): 79, GPU has fallen off the bus.",
    "port_in_use": "OSError: [Errno 98] Address already in use",
    "no_nvidia_runtime": 'could not select device driver "" with capabilities: [[gpu]]',
    "rpc_timeout": "TimeoutError: RPC call to sample_tokens timed out.",
}


# -- evidence beside the log


def test_memory_kill_of_the_container_is_decisive():
    found = diagnose([OOM], exit_code=137, oom_killed=True)

    assert found.kind == "host_oom_kill"
    assert found.captured["exit_code"] == 137
    assert found.evidence[0].line_number == 0


def test_runtime_error_is_read_like_a_log():
    found = diagnose(
        (), exit_code=125, runtime_error='could not select device driver "" with capabilities: [[gpu]].'
    )

    assert (found.kind, found.phase, found.retry) == ("no_nvidia_runtime", "create", Retry.NEVER)


def test_unknown_runtime_error_keeps_its_words():
    found = diagnose((), runtime_error="the frobnicator is jammed")

    assert (found.kind, found.phase) == ("unknown", "create")
    assert found.evidence[0].text == "the frobnicator is jammed"


@pytest.mark.parametrize(
    ("code", "kind"), [(135, "sigbus_shm"), (139, "worker_died"), (134, "worker_died"), (2, "bad_cli")]
)
def test_exit_code_tells_where_the_log_does_not(code, kind):
    assert diagnose(["INFO nothing"], exit_code=code).kind == kind


@pytest.mark.parametrize("code", [0, 1, 125, 137, 143])
def test_exit_code_without_a_cause_is_unknown_and_says_what_it_means(code):
    found = diagnose(["some line"], exit_code=code)

    assert found.kind == "unknown"
    assert found.captured == {"exit_code": code}
    assert found.retry is Retry.YES


def test_exit_code_does_not_hide_the_cause_in_the_log():
    assert diagnose([KV_SMALL], exit_code=139).kind == "kv_small"


def test_member_that_ended_first_is_named():
    found = diagnose([READY, DEAD], exited_member="VLLM::Worker_TP1")

    assert found.kind == "worker_died"
    assert "VLLM::Worker_TP1" in found.sentence


def test_client_error_never_explains_a_death():
    log = [READY, "ValueError: No user query found in messages."]

    assert diagnose(log).kind == "chat_template"
    assert diagnose(log, exit_code=0).kind == "unknown"
    assert diagnose([*log, DEAD]).kind == "unknown"


# -- order of causes


def test_first_cause_wins_over_what_follows():
    assert diagnose([IMA, KV_SMALL]).kind == "ima_other"


def test_wrapper_before_the_cause_is_not_the_cause():
    assert (
        diagnose(["RuntimeError: Engine core initialization failed. See root cause above.", KV_SMALL]).kind
        == "kv_small"
    )


def test_warning_is_only_a_hint():
    warning = "WARNING 11-30 02:31:02 [a.py:1] FlashAttention does not support fp8 kv-cache on this device."

    assert diagnose([warning]).kind == "fp8_kv_ampere"
    assert diagnose([warning, "ERROR 11-30 02:31:09 [a.py:2] " + KV_SMALL]).kind == "kv_small"


def test_what_came_before_ready_was_not_fatal():
    assert diagnose([KV_SMALL, READY]).kind == "unknown"


def test_request_errors_of_a_ready_engine_are_not_start_up_errors():
    log = [READY, "requests.exceptions.ReadTimeout: host='images.example', port=443): Read timed out."]

    assert diagnose(log).kind == "unknown"


def test_last_start_counts_and_earlier_ones_are_counted():
    found = diagnose([ARGUMENTS, IMA, DEAD, ARGUMENTS, KV_SMALL])

    assert found.kind == "kv_small"
    assert found.captured["starts_before"] == 1


def test_failed_start_is_told_while_the_next_one_is_under_way():
    assert diagnose([ARGUMENTS, KV_SMALL, ARGUMENTS]).kind == "kv_small"


def test_halving_starts_from_the_settings_of_the_log():
    found = diagnose([ARGUMENTS, "(Worker pid=3) CUDA error: device kernel image is invalid"])

    assert next((step.knob, step.value) for step in found.steps) == ("max_num_seqs", 5)


def test_message_across_lines_with_another_rank_in_between():
    rank0, rank1 = "(Worker_TP0 pid=3) ", "(Worker_TP1 pid=4) "
    first, second = KV_SMALL.split(" Based on")

    found = diagnose([rank0 + first, rank1 + first, rank0 + "Based on" + second, rank1 + "Based on" + second])

    assert found.captured["estimated_max_len"] == 34736


def test_evidence_names_a_line_once():
    assert [item.line_number for item in diagnose([KV_SMALL, "", "", ""]).evidence] == [1]


def test_evidence_is_bounded():
    found = diagnose([IMA + "x" * 10_000] * 30)

    assert len(found.evidence) == 5
    assert max(len(item.text) for item in found.evidence) == 500


def test_values_with_braces_are_shown_as_they_are():
    found = diagnose(
        [
            "KeyError: 'invalid tool call parser: {x} (chose from { hermes })'",
            "vllm: error: argument -c: {y} [[z]]",
        ]
    )

    assert "{y}" in found.sentence


# -- prefixes


PREFIXES = st.sampled_from(
    [
        "",
        "(VllmWorker rank=0 pid=301) ",
        "(APIServer pid=1) ",
        "(EngineCore_DP0 pid=276) ",
        "(EngineCore pid=276) ERROR 11-30 02:33:11 [core.py:708] ",
        "(Worker_TP1 pid=302) ERROR 11-30 02:33:11.123 [multiproc_executor.py:722] ",
        "(RayWorkerWrapper pid=9, ip=10.0.0.2) ERROR 05-12 08:01:44 worker_base.py:157] ",
        "ERROR 05-12 08:01:44 engine.py:366] ",
        "CRITICAL 05-12 08:01:44 [launcher.py:1] ",
        "[rank0]: ",
    ]
)
CARRIERS = st.sampled_from(
    [
        "",
        "vllm-dual-3090  | ",
        "2026-11-30T02:33:11.123456789Z ",
        "2026-11-30T02:33:11+0100 rigbox vllm[4711]: ",
        "Nov 30 02:33:11 rigbox vllm[4711]: ",
        "Nov  3 02:33:11 rigbox kernel: ",
        "[12345.678901] ",
        "[Mon Nov 30 02:33:11 2026] ",
        "vllm-1  | 2026-11-30T02:33:11.1Z ",
    ]
)
NOISE = st.text(alphabet="qxyz 0123456789", max_size=40)
COLOURS = st.sampled_from(["", "\x1b[31m", "\x1b[1;36m", "\x1b[0;0m"])


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(sorted(LINES)),
    carrier=CARRIERS,
    prefix=PREFIXES,
    colour=COLOURS,
    before=st.lists(NOISE, max_size=8),
    after=st.lists(NOISE, max_size=8),
    ending=st.sampled_from(["", "\n", "\r\n"]),
)
def test_prefixes_colours_and_noise_do_not_change_the_class(  # noqa: PLR0917  (hypothesis passes by name)
    kind, carrier, prefix, colour, before, after, ending
):
    reset = "\x1b[0m" if colour else ""
    line = f"{carrier}{colour}{prefix}{reset}{LINES[kind]}{ending}"

    found = diagnose([*before, line, *after])

    assert found.kind == kind
    assert len(before) + 1 in {item.line_number for item in found.evidence}


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(sorted(LINES)), ranks=st.integers(min_value=2, max_value=4), data=st.data())
def test_interleaved_ranks_do_not_change_the_class(kind, ranks, data):
    text = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    f()", LINES[kind]]
    queues = [[f"(Worker_TP{rank} pid={300 + rank}) {line}" for line in text] for rank in range(ranks)]
    mixed = []
    while any(queues):
        queue = data.draw(st.sampled_from([queue for queue in queues if queue]))
        mixed.append(queue.pop(0))

    assert diagnose(mixed).kind == kind


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=200), max_size=50))
def test_any_text_is_read_without_an_exception(lines):
    diagnose(lines)


# -- the rules themselves


def test_every_needle_is_part_of_what_its_pattern_matches_in_lower_case():
    assert [s.needle for rule in RULES for s in rule.signatures if s.needle != s.needle.lower()] == []


def test_overrides_name_classes_that_exist():
    kinds = {rule.kind for rule in RULES}

    assert {kind for rule in RULES for kind in rule.overrides} <= kinds


def test_client_errors_never_ask_for_a_restart():
    clients = [rule for rule in RULES if rule.weight is Weight.CLIENT]

    assert {turn.change for rule in clients for turn in rule.turns} == {"fix"}


# -- the command


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(classify)

    def invoke(*arguments, stdin=None):
        return CliRunner().invoke(app, list(arguments), input=stdin)

    return invoke


def test_json_has_the_documented_keys(run, tmp_path):
    log = tmp_path / "engine.log"
    log.write_text("a line\n" + KV_SMALL + "\n")

    result = run(str(log), "--json")

    document = json.loads(result.stdout)
    assert document["class"] == "kv_small"
    assert document["retry_helps"] is False
    assert document["steps"][0] == {"knob": "max_model_len", "change": "set", "value": 34736}
    assert document["evidence"][0]["line_number"] == 2
    assert document["captured"]["needed_gib"] == 16.0
    assert {"phase", "remedy", "sentence"} <= document.keys()


def test_person_gets_class_evidence_and_a_next_command(run):
    result = run(stdin="x\n" + KV_SMALL + "\n")

    assert result.exit_code == 0
    for part in ("kv_small", "line 2", "retrying helps", "rigd set max_model_len 34736"):
        assert part in result.stdout


def test_conditional_retry_is_said_so(run):
    line = (
        "Free memory on device cuda:0 (1.2/24.0 GiB) on startup is less than desired GPU memory utilization"
        " (0.9, 21.6 GiB)."
    )

    assert json.loads(run("--json", stdin=line).stdout)["retry_helps"] == "conditional"


def test_exit_code_option_is_evidence(run):
    assert json.loads(run("--exit-code", "135", "--json", stdin="x\n").stdout)["class"] == "sigbus_shm"


def test_empty_log_is_unknown(run, tmp_path):
    (tmp_path / "empty.log").touch()

    document = json.loads(run(str(tmp_path / "empty.log"), "--json").stdout)

    assert (document["class"], document["sentence"]) == ("unknown", "The log is empty.")


def test_compressed_log_is_read(run, tmp_path):
    (tmp_path / "engine.log.1.gz").write_bytes(gzip.compress(KV_SMALL.encode()))

    assert json.loads(run(str(tmp_path / "engine.log.1.gz"), "--json").stdout)["class"] == "kv_small"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (bytes(range(256)) * 40, "binary"),
        (b"LPKSHHRH" + bytes(100), "journal"),
        (b"\xff\xfeh\x00i\x00", "UTF-16"),
    ],
    ids=["garbage", "journal", "utf-16"],
)
def test_what_is_no_text_is_refused_with_a_hint(run, tmp_path, content, words):
    (tmp_path / "x.log").write_bytes(content)

    error = run(str(tmp_path / "x.log")).exception

    assert isinstance(error, UsageError)
    assert words in str(error)
    assert error.hint


def test_garbage_in_a_pipe_is_refused(run):
    error = run(stdin=bytes(range(256)) * 40).exception

    assert isinstance(error, UsageError)
    assert "binary" in str(error)


def test_log_without_a_failure_says_so(run):
    result = run(stdin="INFO all is well\n")

    assert "No known failure" in result.stdout
    assert "retrying" not in result.stdout


@pytest.mark.parametrize("name", ["missing.log", "."], ids=["missing", "folder"])
def test_missing_file_and_folder_are_said_so(run, tmp_path, name):
    error = run(str(tmp_path / name)).exception

    assert isinstance(error, UsageError)
    assert error.hint


def test_endless_line_is_cut_and_keeps_line_numbers(tmp_path):
    path = tmp_path / "long.log"
    path.write_bytes(b"x" * 1_000_000 + b"\n" + IMA.encode() + b"\n")

    with path.open("rb") as stream:
        found = diagnose(bounded_lines(stream))

    assert found.evidence[0].line_number == 2

"""What an engine says about its cache, its template and its rate; and what holds where it does not."""

import json

import pytest
from gateway_engine import answer, engine

from rigd.adapters.vllm_metrics import parse_counters
from rigd.gateway.target import ask, assumed, target_of, tokenized
from rigd.prefix.hits import Cache, Rate
from rigd.prefix.sources import Recorded

NAMES = ("block_size", "mamba_block_size", "mamba_cache_mode", "prefix_match_unit")
CACHE = "vllm:cache_config_info{" + ",".join(f'{name}="%s"' for name in NAMES) + "} 1.0"
COUNTS = """
vllm:prefix_cache_queries_total{engine="0"} 5000.0
vllm:request_prefill_kv_computed_tokens_sum{engine="0"} 4000.0
vllm:request_prefill_time_seconds_sum{engine="0"} 4.0
"""
DRAFTS = 'vllm:spec_decode_num_drafts_total{engine="0"} 0.0\n'


def page(block="16", state="None", mode="none", unit="None", *, more=""):
    return (CACHE % (block, state, mode, unit) + COUNTS + more).encode()


@pytest.mark.parametrize(
    ("text", "step", "hybrid"),
    [
        (page("128"), 128, False),
        (page("1600", "1600", "align"), 1600, True),
        (page("16", "1600", "align", "32"), 32, True),
        (page("24", "16", "all"), 48, True),
        (page("16", "262144", "none"), 16, False),
        (COUNTS.encode(), None, False),
    ],
    ids=["dense", "hybrid", "match unit", "both must end", "caching off", "no info"],
)
def test_hits_count_in_steps_that_the_metrics_name(text, step, hybrid):
    found = parse_counters(text)

    assert (found.hit_step, found.hybrid) == (step, hybrid)


def test_speculation_is_seen_by_its_counters_even_before_the_first_draft():
    assert parse_counters(page(more=DRAFTS)).speculative
    assert not parse_counters(page()).speculative


def scripted(metrics, *, tools_first=False, tokenizes=True):
    """Return an engine whose template writes tools before or behind the system text, a token a letter."""

    async def script(call):
        path = call.line.split()[1]
        asked = json.loads(await call.body() or b"{}")
        if path == "/tokenize" and tokenizes:
            system = asked["messages"][0]["content"]
            tools = json.dumps(asked.get("tools"))
            text = tools + system if tools_first else system + tools
            await call.say(answer("200 OK", json.dumps({"tokens": [ord(one) for one in text]}).encode()))
        elif path == "/metrics":
            await call.say(answer("200 OK", metrics))
        elif path == "/v1/models":
            await call.say(answer("200 OK", b'{"data": [{"id": "served"}]}'))
        else:
            await call.say(answer("404 Not Found", b"{}"))

    return script


@pytest.mark.parametrize("tools_first", [True, False])
async def test_engine_is_asked_for_block_template_and_rate(tools_first):
    async with engine(scripted(page("128", more=DRAFTS), tools_first=tools_first)) as behind:
        found = await ask(target_of(behind.url), rate=None)

    said_by = f"the engine at {behind.url}"
    assert found.cache == Cache(block=128, speculative=True, tools_first=tools_first, said_by=said_by)
    assert found.rate == Rate(tokens_per_s=1000, said_by="measured by the engine over 4,000 tokens")
    assert found.target.model == "served"


async def test_what_a_person_states_goes_first():
    async with engine(scripted(page("128"))) as behind:
        found = await ask(target_of(behind.url), rate=50, block=32)

    assert (found.cache.block, found.cache.said_by) == (32, "stated")
    assert found.rate == Rate(tokens_per_s=50, said_by="stated")


async def test_engine_without_a_tokenizer_route_gives_no_tokens():
    request = Recorded(name="a", body={"messages": [{"role": "user", "content": "x"}]})

    async with engine(scripted(page(), tokenizes=False)) as behind:
        found = await ask(target_of(behind.url), rate=None)
        tokens = await tokenized(found.target, [request])

    assert (found.reachable, found.cache.tools_first, tokens) == (True, False, {})


async def test_rig_file_says_block_and_speculation_of_an_engine_that_is_down(tmp_path, free_port):
    path = tmp_path / "rig.yaml"
    path.write_text(
        f"name: r\nengine: {{runtime: process, version: 0.32.0, model: m, port: {free_port}, arguments: "
        "{block_size: 64, speculative: {method: mtp, num_speculative_tokens: 1}}}\n"
    )

    found = await ask(target_of(str(path)), rate=None)

    assert not found.reachable
    assert found.cache == Cache(block=64, speculative=True, said_by="the rig file")


def test_without_an_engine_the_block_is_assumed_and_says_so():
    assert assumed(rate=None, block=None) == (Cache(block=16, said_by="assumed"), None)
    assert assumed(rate=None, block=8)[0].said_by == "stated"

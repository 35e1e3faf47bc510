"""Rungs beside restarts and knobs, on the double: waiting, moving a cache aside, raising beyond the wish."""

import contextlib
import hashlib
import signal
import socket
import threading
from pathlib import Path

import httpx
import pytest


@pytest.fixture
def rig(make_rig):
    made = make_rig(("double", "process"))
    made.settings["engine"]["arguments"] |= {"max_num_seqs": 2, "max_num_batched_tokens": 2048}
    made.settings["supervision"] |= {"attempts": 3, "early_crash_s": 5, "healthy_stretch_s": 0.5}
    made.settings["supervision"]["ladder"] = {"restarts": 1, "climb_after_s": 3600}
    yield made
    made.close()
    made.daemon = None


def overlay(rig):
    return [step["text"] for step in rig.status()["overlay"]]


@contextlib.contextmanager
def port_taken(rig):
    rig.settings["supervision"]["deadlines"]["gates_s"] = 1
    with socket.create_server(("127.0.0.1", rig.settings["engine"]["port"])):
        yield


def test_taken_port_is_waited_for_and_costs_neither_start_nor_attempt(rig):
    with port_taken(rig):
        rig.start_daemon()
        waiting = rig.until(
            lambda: (rig.status()["waiting"] or {}).get("detail") and rig.status(), 30, "it waits"
        )
        assert (waiting["waiting"]["what"], waiting["state"]) == ("port", "backoff")
        assert "python" in waiting["reason"] or "pytest" in waiting["reason"]
        assert waiting["waiting"]["since_s"] <= waiting["now_s"]

    status = rig.wait("ready")

    assert (rig.launches(), status["attempts"]["failed"], status["waiting"]) == (1, 0, None)


def test_waiting_has_an_end_that_says_what_was_waited_for(rig):
    rig.settings["supervision"]["ladder"]["wait_s"] = 2
    with port_taken(rig):
        rig.start_daemon()
        status = rig.wait("failed", deadline_s=30)

    assert (rig.launches(), status["gave_up"]) == (0, "waited in vain")
    assert "waited 2 s for the port to be free" in status["reason"]


def test_missing_model_folder_is_waited_for_after_the_start_that_missed_it(rig):
    model = rig.folder / "model"
    rig.settings["engine"]["model"] = str(model)
    rig.fault(fail_at_start="model-missing")
    rig.start_daemon()
    looked = rig.until(lambda: (rig.status()["waiting"] or {}).get("detail"), 30, "it has looked and waits")
    assert looked == f"{model} is not there"

    rig.fault()
    model.mkdir()

    rig.wait("ready")
    assert rig.launches() == 2


def test_folder_that_was_there_all_along_is_not_waited_for(rig):
    rig.settings["engine"]["model"] = str(rig.folder)
    rig.fault(fail_at_start="model-missing")
    rig.start_daemon()

    status = rig.wait("failed", deadline_s=30)

    assert (rig.launches(), status["gave_up"]) == (1, "retrying is useless")


@pytest.fixture
def cache(rig):
    """Give the compile cache of a rig, poisoned."""
    root = rig.folder / "cache"
    rig.settings["engine"]["environment"] = {"VLLM_CACHE_ROOT": str(root)}
    folder = root / "torch_compile_cache"
    folder.mkdir(parents=True)
    (folder / "artifact").write_bytes(b"x" * 8192)
    rig.fault(poisoned_cache=True)
    return folder


def asides(cache):
    return [path.name for path in cache.parent.iterdir() if ".aside-" in path.name]


def test_poisoned_cache_is_moved_aside_once_and_the_engine_starts(rig, cache):
    rig.start_daemon()

    status = rig.wait("ready")

    assert (rig.launches(), overlay(rig), len(asides(cache))) == (2, [], 1)
    assert status["asides"][0]["done"]
    assert "MiB" in status["asides"][0]["detail"]


def test_cache_that_is_poisoned_again_is_left_out_instead(rig, cache):
    rig.start_daemon()
    rig.wait("ready")
    cache.mkdir()
    (cache / "artifact").write_bytes(b"x")

    rig.act("restart")

    rig.until(lambda: overlay(rig) and rig.status()["state"] == "ready", 60, "it serves without the cache")
    assert overlay(rig) == ["environment.VLLM_DISABLE_COMPILE_CACHE vLLM's default -> 1"]
    assert len(asides(cache)) == 1


@pytest.fixture
def download(rig):
    """Give the snapshot of a model that was downloaded whole, from a hub that does not answer any more."""
    hub = rig.folder / "hub"
    rig.settings["engine"] |= {"model": "org/m", "served_model_name": "m"}
    rig.settings["engine"]["environment"] = {"HF_HUB_CACHE": str(hub), "HF_ENDPOINT": "http://127.0.0.1:9"}
    folder = hub / "models--org--m"
    snapshot = folder / "snapshots" / "c0ffee"
    for place in (snapshot, folder / "refs", folder / "blobs"):
        place.mkdir(parents=True)
    (folder / "refs/main").write_text("c0ffee")
    header = b'{"w": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}}'
    weights = len(header).to_bytes(8, "little") + header + b"\1" * 8
    blob = folder / "blobs" / hashlib.sha256(weights).hexdigest()
    blob.write_bytes(weights)
    (snapshot / "model.safetensors").symlink_to(blob)
    for name in ("config.json", "tokenizer.json"):
        (snapshot / name).write_text("{}")
    return snapshot


def test_engine_whose_download_is_whole_starts_without_the_network(rig, download):
    rig.fault(fail_at_start="hf-network")
    rig.start_daemon()
    rig.until(lambda: overlay(rig), 30, "it goes on without the network")
    rig.fault()

    status = rig.wait("ready")

    assert overlay(rig) == ["environment.HF_HUB_OFFLINE vLLM's default -> 1"]
    assert b"HF_HUB_OFFLINE=1" in Path(f"/proc/{status['engine']['pid']}/environ").read_bytes().split(b"\0")


def test_engine_whose_download_is_not_whole_waits_for_the_network(rig, download):
    (download / "tokenizer.json").unlink()
    rig.fault(fail_at_start="hf-network")
    rig.start_daemon()

    looked = rig.until(lambda: (rig.status()["waiting"] or {}).get("detail"), 30, "it has looked and waits")

    assert "http://127.0.0.1:9 does not answer" in looked
    assert "org/m: there is no tokenizer" in looked
    assert (overlay(rig), rig.launches()) == ([], 1)


def test_damaged_file_of_a_download_is_moved_aside_and_named(rig, download):
    weights = (download / "model.safetensors").resolve()
    weights.write_bytes(weights.read_bytes()[:-4])
    rig.fault(fail_at_start="weights-corrupt")
    rig.start_daemon()
    aside = rig.until(lambda: [one for one in rig.status()["asides"] if one["done"]], 30, "it is moved")[0]
    rig.fault()

    rig.wait("ready")

    assert "model.safetensors (it has 72 bytes, and its header says 76)" in aside["detail"]
    assert [path.name.partition(".")[2][:6] for path in weights.parent.iterdir()] == ["aside-"]
    assert (download / "config.json").exists()


@pytest.mark.parametrize("kind", ["failure", "overlay", "launched"])
def test_daemon_killed_at_a_step_of_a_remediation_goes_on_and_does_none_twice(rig, kind):
    rig.fault(oom_unless_max_num_seqs=1)
    rig.settings["supervision"]["ladder"]["least_max_num_seqs"] = 1
    rig.start_daemon()
    rig.until(lambda: any(event["kind"] == kind for event in rig.events()), 30, kind)

    rig.kill_daemon(signal.SIGKILL)
    rig.start_daemon()

    rig.wait("ready")
    assert overlay(rig) == ["max_num_seqs 2 -> 1"]
    # The start that the killed daemon had in hand may be gone with nobody to hear why.
    assert rig.launches() <= 3


def test_daemon_killed_while_it_moves_a_cache_moves_it_once(rig, cache):
    for _ in range(3):
        rig.start_daemon()
        rig.until(lambda: rig.status()["asides"] or rig.status()["state"] == "ready", 30, "it is noted")
        rig.kill_daemon(signal.SIGKILL)
    rig.start_daemon()

    rig.wait("ready")
    assert (len(asides(cache)), overlay(rig)) == (1, [])


def test_daemon_killed_while_it_waits_goes_on_waiting(rig):
    with port_taken(rig):
        rig.start_daemon()
        before = rig.until(lambda: rig.status()["waiting"], 30, "it waits")
        rig.kill_daemon(signal.SIGKILL)
        rig.start_daemon()
        after = rig.until(lambda: rig.status()["waiting"], 30, "it waits again")
        assert (after["what"], after["since_s"], after["until_s"]) == (
            before["what"],
            before["since_s"],
            before["until_s"],
        )

    rig.wait("ready")
    assert rig.launches() == 1


# Beyond the wish.


@pytest.fixture
def climbing(rig):
    rig.settings["supervision"]["ladder"] |= {
        "climb_after_s": 3,
        "most_max_num_seqs": 4,
        "raise_waiting": 0.02,
    }
    rig.settings["supervision"]["probe_interval_s"] = 0.2
    rig.fault()
    rig.start_daemon()
    rig.wait("ready")
    return rig


def crowd(rig, requests=6):
    """Send more requests at once than there are places, and wait for their answers."""

    def ask():
        with contextlib.suppress(httpx.HTTPError):
            rig.chat([{"role": "user", "content": "count"}], max_tokens=400)

    threads = [threading.Thread(target=ask) for _ in range(requests)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def said(rig, words):
    return [event["message"] for event in rig.events() if words in event["message"]]


def test_batch_is_raised_beyond_the_wish_when_requests_wait_and_kept(climbing):
    crowd(climbing)

    climbing.until(lambda: said(climbing, "max_num_seqs 2 -> 4 holds"), 60, "the raise holds")

    assert overlay(climbing) == ["max_num_seqs 2 -> 4"]
    assert climbing.status()["overlay"][0]["kind"] == "room"
    assert climbing.launches() == 2


def test_raise_that_cannot_start_is_taken_back(climbing):
    climbing.fault(oom_unless_max_num_seqs=2)
    crowd(climbing)

    climbing.until(lambda: said(climbing, "beyond the wish, it failed"), 60, "the raise failed")

    climbing.wait("ready")
    assert (overlay(climbing), climbing.launches()) == ([], 3)


def test_nothing_is_raised_while_nobody_waits(climbing):
    launched = climbing.launches()
    ready_s = climbing.status()["ready_s"]

    climbing.until(lambda: climbing.status()["now_s"] - ready_s > 5, 10, "the stretch is over")

    assert climbing.launches() == launched

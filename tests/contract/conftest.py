"""The engines of the contract: the double always, and real vLLM where the lab is. The same tests ask both.

An engine is started on first use and shared; a test that kills it leaves the next one a new engine. A real start
costs half a minute, so the tests that kill come last by their file's name (`test_contract_stops.py`).
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from contract_engine import KEY, MODEL, Engine, Engines

from rigd.adapters.vllm import VllmClient

IDLE_DEADLINE_S = 120.0
IDLE_LOOK_S = 0.05


@pytest.fixture(scope="session")
def engine_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rigd-contract-") as folder:
        yield Path(folder)


@pytest.fixture(
    scope="session",
    params=[pytest.param("double", id="double"), pytest.param("real", id="real", marks=pytest.mark.lab)],
)
def engines(request: pytest.FixtureRequest, engine_folder: Path) -> Iterator[Engines]:
    """Return the starter of engines of one kind."""
    if request.param == "double":
        command: tuple[str, ...] = (sys.executable, "-m", "rigd.sim", "tinymimo")
        environment: dict[str, str] = {}
    else:
        executable = request.getfixturevalue("vllm_executable")
        models = request.getfixturevalue("lab_models")
        command = (str(executable), "serve", str(models / "tinymimo"))
        environment = request.getfixturevalue("vllm_environment")
    found = Engines(kind=request.param, command=command, environment=environment, folder=engine_folder)
    yield found
    if found.current is not None:
        found.current.end()


@pytest.fixture
def engine(engines: Engines) -> Engine:
    """Return an engine that serves; shared with other tests."""
    return engines.get()


@pytest_asyncio.fixture
async def client(engine: Engine) -> AsyncIterator[VllmClient]:
    """Return rigd's client of that engine, once the engine has done with the requests of the test before."""
    found = VllmClient(engine.url, model=MODEL, api_key=KEY)
    until_s = time.monotonic() + IDLE_DEADLINE_S
    while not await _idle(found):
        assert time.monotonic() < until_s, (
            f"the engine has had requests of nobody for {IDLE_DEADLINE_S:.0f} s"
        )
        await asyncio.sleep(IDLE_LOOK_S)
    yield found
    await found.aclose()


async def _idle(client: VllmClient) -> bool:
    """Return whether nothing is in hand; the server counts what the core has told it, so it is asked twice."""
    first = await client.counters(30.0)
    await asyncio.sleep(IDLE_LOOK_S)
    second = await client.counters(30.0)
    return second.running + second.waiting == 0 and first.fingerprint == second.fingerprint

"""`python -m sandbox.cloud --state DIR`: serve until the process is ended; `DIR/run/cloud.ready` tells the port."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from sandbox import pools
from sandbox.cloud import auto_repair, ecs_assistant, pool_work, seed
from sandbox.cloud.access import own_kubeconfig
from sandbox.cloud.endpoint import Endpoint
from sandbox.cloud.fleet import ClusterFleet
from sandbox.cloud.operations import registry
from sandbox.cloud.server import Server
from sandbox.cloud.store import Store
from sandbox.cloud.tasks import Engine
from sandbox.cloud.world import Settings, World


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    state: Path = options.state
    given = pools.load()
    settings = Settings(state, task_seconds=options.task_seconds, not_ready_seconds=given.timing.auto_repair_after)
    store = Store(state / "cloud" / "state.json", lambda: seed.records(given, datetime.now(UTC)))
    world = World(store, ClusterFleet(own_kubeconfig(state), state / "nodes"), settings)
    with store.change():
        ecs_assistant.end_orphans(world)
    server = Server(Endpoint(world, registry()), options.port)
    server.start()
    engine = Engine(world, pool_work.replace_failed, auto_repair.Repairs().step)
    engine.start()
    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    server.announce(state / "run" / "cloud.ready")
    stop.wait()
    server.shutdown()
    engine.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sandbox.cloud", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="folder of the sandbox")
    parser.add_argument("--port", type=int, default=0, help="0: any free port (default)")
    parser.add_argument("--task-seconds", type=float, default=1.0, help="how long a task runs at least")
    return parser


if __name__ == "__main__":
    main()

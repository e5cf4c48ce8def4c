"""`python -m sandbox.machines --state DIR --kubelet-port PORT`: the machines of a sandbox, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from sandbox import pools
from sandbox.machines import isolation


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sandbox.machines", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="the sandbox's folder")
    parser.add_argument("--kubelet-port", type=int, required=True, help="where the API server finds every kubelet")
    options = parser.parse_args()
    run_folder = options.state.absolute() / "run" / "machines"
    run_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    permitted = os.environ.get("ACK_SANDBOX_NAMESPACES", "yes") != "no"
    isolated = permitted and isolation.enter(run_folder / "proc")
    if not isolated:
        logging.getLogger("machines").warning("no own namespaces here: paths on the nodes are rewritten instead")
    asyncio.run(serve(options.state.absolute(), run_folder, options.kubelet_port, isolated=isolated))
    return 0


async def serve(state: Path, run_folder: Path, kubelet_port: int, *, isolated: bool) -> None:
    """Serve until SIGTERM; `run/machines.ready` says how nodes are kept apart, once all that exists has been seen."""
    # Imported here, after the fork: what is imported before is there twice.
    from sandbox.machines.api import Api
    from sandbox.machines.processes import Processes
    from sandbox.machines.room import Room
    from sandbox.machines.server import Server

    if sys.version_info < (3, 12):
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
        asyncio.get_child_watcher().attach_loop(asyncio.get_running_loop())
    api = Api(state / "pki" / "machines.kubeconfig")
    processes = Processes(run_folder, isolated=isolated)
    room = Room(api, state / "nodes", processes, pools.load().timing, kubelet_port)
    Server(room, run_folder).listen()
    running = asyncio.ensure_future(room.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    how = "namespaces" if isolated else "rewritten paths"
    ready = asyncio.ensure_future(_tell_ready(room.listed, state / "run" / "machines.ready", how))
    with suppress(asyncio.CancelledError):
        await running
    ready.cancel()
    for kubelet in room.kubelets.values():
        kubelet.host.remove()
    await api.close()


async def _tell_ready(listed: asyncio.Event, path: Path, how: str) -> None:
    await listed.wait()
    path.write_text(f"{how}\n")


if __name__ == "__main__":
    sys.exit(main())

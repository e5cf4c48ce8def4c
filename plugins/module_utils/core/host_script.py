"""What is done on the host of a node, as shell scripts: the probe before the cordon, and the documented procedure.

ACK ("Upgrade the cGPU version of a node"): stop the runtime, ``bash /usr/local/cgpu-installer/uninstall.sh``, restart,
compare ``/proc/cgpu_km/version``. What the document leaves out, a node needs: stopping the runtime does not stop
containers, so they are stopped first; nothing may hold a card when the module goes; and a script that is a child of a
pod dies with the pod, so it runs as a unit of its own (``systemd-run``), whose script, log and status stay on the host.
"""

from __future__ import annotations

import base64
import gzip
from datetime import timedelta
from typing import Literal

import msgspec

UNINSTALL = "/usr/local/cgpu-installer/uninstall.sh"
VERSION_FILE = "/proc/cgpu_km/version"
FOLDER = "/var/lib/ai-suite"

Runtime = Literal["containerd", "docker"]
Phase = Literal["absent", "started", "stopping", "uninstalling", "uninstalled", "refused", "failed", "died"]


class Status(msgspec.Struct, frozen=True):
    """How far the unit on a host is. ``refused`` ended before the uninstall, ``failed`` after it began.

    ``died`` left no end of its own: somebody killed it, or its host restarted (then the boot id is another one).
    """

    phase: Phase = "absent"
    text: str = ""
    boot_id: str = ""


class Probe(msgspec.Struct, frozen=True):
    """What was found on a host before anything is done to it. ``version`` is "" when no module is loaded."""

    version: str = ""
    uninstall: bool = False
    systemd_run: bool = False
    boot_id: str = ""


class Procedure(msgspec.Struct, frozen=True):
    """What the host script needs to know. ``own`` is the operator's uninstall script, for hosts that lack theirs."""

    unit: str
    runtime: Runtime
    restart: bool  # the guest restarts itself
    patience: timedelta = timedelta(minutes=2)  # for each command on the host that may hang
    settle: timedelta = timedelta(seconds=30)  # for the cards to become free once the containers are stopped
    own: bytes = b""


_PROBE = f"""\
printf 'version=%s\\n' "$(cat {VERSION_FILE} 2>/dev/null)"
[ -f {UNINSTALL} ] && echo uninstall=yes
command -v systemd-run >/dev/null && echo systemd_run=yes
printf 'boot_id=%s\\n' "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
"""


def probe() -> list[str]:
    """The command whose output ``read_probe`` understands."""
    return ["sh", "-c", _PROBE]


def read_probe(output: str) -> Probe:
    found = _pairs(output)
    return Probe(
        found.get("version", ""),
        found.get("uninstall") == "yes",
        found.get("systemd_run") == "yes",
        found.get("boot_id", ""),
    )


def read_version() -> list[str]:
    """The command by which ACK documents the check of the loaded version."""
    return ["cat", VERSION_FILE]


def status_command(unit: str) -> str:
    """Shell text whose output ``read_status`` understands; it also runs through Cloud Assistant."""
    return f"""\
printf 'boot_id=%s\\n' "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
systemctl is-active --quiet {unit} && echo alive=yes
[ -d {FOLDER}/{unit}/started ] && echo phase=started
cat {FOLDER}/{unit}/status 2>/dev/null
exit 0
"""


def read_status(output: str) -> Status:
    """The life of the unit was looked at before its status: one that was dead by then has written its last."""
    found = _pairs(output)
    phase, alive = msgspec.convert(found.get("phase", "absent"), Phase), "alive" in found
    if alive and phase == "absent":
        phase = "started"
    if not alive and phase in ("started", "stopping", "uninstalling"):
        return Status("died", f"while {phase}", found.get("boot_id", ""))
    return Status(phase, found.get("text", ""), found.get("boot_id", ""))


def _pairs(output: str) -> dict[str, str]:
    lines = (line.partition("=") for line in output.splitlines())
    return {name.strip(): value.strip() for name, sign, value in lines if sign}


def start(procedure: Procedure) -> list[str]:
    """The command that puts the script on the host and starts it as a unit; a second start finds the first."""
    folder = f"{FOLDER}/{procedure.unit}"
    files = {"run.sh": script(procedure).encode()} | ({"uninstall.sh": procedure.own} if procedure.own else {})
    put = "\n".join(_put(f"{folder}/{name}", content) for name, content in files.items())
    text = f"""\
[ -d {folder}/started ] && exit 0
set -e
mkdir -p {folder}
{put}
systemd-run --unit={procedure.unit} --description='cGPU upgrade of this node' sh {folder}/run.sh
"""
    return ["sh", "-c", text]


def _put(path: str, content: bytes) -> str:
    """Shell text that writes a file in one step: a script that runs already is not changed under its shell's eyes."""
    packed = base64.b64encode(gzip.compress(content, mtime=0)).decode()
    return f"printf %s {packed} | base64 -d | gunzip > {path}.new\nmv {path}.new {path}"


# Runtime and what revives it (docker.socket starts docker at the next client call), and how containers are stopped.
_SERVICES = {"containerd": "containerd", "docker": "docker.socket docker"}
_STOP = {
    "containerd": 'crictl pods -q | xargs -r -n 1 -P 8 timeout "$patience" crictl stopp',
    "docker": 'docker ps -q | xargs -r -n 1 -P 8 timeout "$patience" docker stop -t 30',
}


def script(procedure: Procedure) -> str:
    """The unit's script (POSIX sh). It ends in status ``uninstalled``, ``refused`` or ``failed``, whatever happens."""
    uninstall = '"$folder/uninstall.sh"' if procedure.own else UNINSTALL
    restart = "systemctl reboot\n" if procedure.restart else ""
    return f"""\
#!/bin/sh
# cGPU upgrade of this node, by ack.ai_suite.
folder={FOLDER}/{procedure.unit}
runtime='{_SERVICES[procedure.runtime]}'
patience={int(procedure.patience.total_seconds())} # for each command that may hang
settle={int(procedure.settle.total_seconds())} # until the cards must be free
daemons=
export CONTAINER_RUNTIME_ENDPOINT=unix:///run/containerd/containerd.sock

status() {{
  phase=$1
  echo "$(date -u +%FT%TZ) $1 $2"
  printf 'phase=%s\\ntext=%s\\n' "$1" "$2" >"$folder/status.new"
  mv "$folder/status.new" "$folder/status"
  sync
}}

# A host that cannot go on gets its runtime and its kubelet back, so that it can be asked why.
give_up() {{
  trap '' TERM INT HUP
  if [ "$phase" = uninstalling ]; then status failed "$1"; else status refused "$1"; fi
  for unit in $runtime $daemons kubelet; do systemctl start "$unit"; done
  exit 1
}}

# What is still on a card: containers of the module, and processes that hold a device file.
users() {{
  for instance in /proc/cgpu_km/[0-9]*/*/; do
    if [ -d "$instance" ]; then printf ' %s' "$instance"; fi
  done
  for pid in $(holders); do
    printf ' %s(%s)' "$(cat "/proc/$pid/comm" 2>/dev/null)" "$pid"
  done
}}

holders() {{
  if command -v fuser >/dev/null; then
    fuser /dev/nvidia* 2>/dev/null
  else
    find /proc/[0-9]*/fd -lname '/dev/nvidia*' 2>/dev/null | cut -d/ -f3 | sort -un
  fi
}}

mkdir "$folder/started" 2>/dev/null || exit 0 # once, whoever asks
exec >>"$folder/log" 2>&1
trap 'give_up "stopped by a signal"' TERM INT HUP
status stopping 'kubelet, containers, runtime'
for unit in nvidia-persistenced nvidia-fabricmanager nvidia-dcgm; do
  if systemctl is-active --quiet "$unit"; then daemons="$daemons $unit"; fi
done
systemctl stop kubelet || give_up 'kubelet could not be stopped'
{_STOP[procedure.runtime]} || give_up 'containers could not be stopped'
for unit in $runtime $daemons; do
  systemctl stop "$unit" || give_up "$unit could not be stopped"
done

waited=0
while held=$(users) && [ -n "$held" ]; do
  if [ "$waited" -ge "$settle" ]; then give_up "still on the GPU:$held"; fi
  sleep 1
  waited=$((waited + 1))
done

status uninstalling ''
timeout "$patience" bash {uninstall} || give_up "the uninstall script ended with exit status $?"
status uninstalled ''
{restart}"""

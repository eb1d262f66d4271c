"""topology.conf and topology.yaml: what is read, and what is refused with its place."""

from placement.fabric.reader import from_spec
from tests.unit.fabricfiles.conftest import Read, Refused, tree

TREE = """\
# the fabric of building 4
switchname=core SWITCHES=zone[1-2]   # all of it
SwitchName=zone1 Switches=rack[1-2] LinkSpeed=100
SwitchName=zone2 \\
    Switches=rack3
SwitchName=rack1 Nodes=n[01-02]
SwitchName = rack2 Nodes = "n[03-04]"
SwitchName=rack3 Nodes=n05,login
"""


def test_a_tree(read: Read) -> None:
    """Comments, continued lines, any case of keys, quotes and blanks around =."""
    built = read(TREE, "slurm")
    assert tree(built.fabric) == {
        "n01": "zone1/rack1",
        "n02": "zone1/rack1",
        "n03": "zone1/rack2",
        "n04": "zone1/rack2",
        "n05": "zone2/rack3",
        "login": "zone2/rack3",
    }
    assert [tier.name for tier in built.fabric.tiers] == ["zone", "rack"]
    assert built.notes[0] == "dropped: core, above every host and so no boundary"
    assert built.notes[1].startswith("assumed: 8 GPUs a host, 400 Gbit/s each, full bandwidth")


def test_trees_that_no_switch_joins_stay_apart(read: Read) -> None:
    forest = "SwitchName=a Switches=l\nSwitchName=l Nodes=x[1-2]\nSwitchName=b Switches=m\n"
    forest += "SwitchName=m Nodes=y[1-2]\n"
    built = read(forest, "slurm")
    assert built.notes[0].startswith("no switch joins a, b: no gang lies across them")
    assert not from_spec(built.fabric.spec).is_joined
    joined = read(forest, "slurm", "joined: true\n")
    assert joined.fabric.is_joined
    assert not any("joins" in note for note in joined.notes)
    assert read(forest, "slurm", hosts="x.*").fabric.is_joined
    assert not any("joins" in note for note in read(TREE, "slurm").notes)
    blocks = "BlockName=b1 Nodes=n[1-4]\nBlockName=b2 Nodes=n[5-8]\nBlockSizes=4\n"
    assert not any("joins" in note for note in read(blocks, "slurm").notes)


def test_a_catch_all_of_hosts_without_a_place_is_said(read: Read) -> None:
    rows = "SwitchName=root Switches=leaf,unknown\nSwitchName=leaf Nodes=n1\n"
    notes = read(rows + "SwitchName=unknown Nodes=n2,,n3,\n", "slurm").notes
    assert any(note.startswith("unknown is where hosts are put whose") for note in notes)


def test_other_topologies_of_the_file_are_named(read: Read, refused: Refused) -> None:
    gpu = "- topology: gpu\n  block: {blocks: [{block: b, nodes: 'n[0-7]'}]}\n"
    cpu = "- topology: cpu\n  cluster_default: true\n"
    tree_text = cpu + "  tree: {switches: [{switch: s, nodes: 'c[0-3]'}]}\n"
    notes = read(gpu + tree_text, "slurm-yaml").notes
    assert notes[0] == "read cpu; the file also has gpu: --topology takes one"
    assert not any("also" in note for note in read(gpu, "slurm-yaml").notes)
    says = "a tree or blocks can become a fabric: choose gpu with --topology"
    refused(gpu + cpu + "  flat: true\n", "slurm-yaml", says)


def test_a_leaf_under_the_core_is_a_zone_and_what_has_no_place_is_left_out(read: Read) -> None:
    """Topograph's pseudo-switch is no zone, and the root above the rest is still one root."""
    rows = TREE.replace("zone[1-2] ", "zone[1-2],rack9,spare ")
    rows += "SwitchName=rack9 Nodes=fat1\nSwitchName=spare Switches=gone\nSwitchName=gone\n"
    built = read(f"{rows}SwitchName=no-topology Nodes=cpu[1-5]\n", "slurm")
    assert tree(built.fabric)["fat1"] == "rack9/rack9"
    assert [tier.name for tier in built.fabric.tiers] == ["zone", "rack"]
    assert len(built.fabric.hosts) == 7
    assert "rack9 skips a tier: it stands alone there" in built.notes
    assert "left out: gone, spare, with no host below" in built.notes
    assert "left out: cpu1, cpu2, cpu3 and 2 more, under no-topology" in built.notes


def test_parallel_spines_are_one(read: Read) -> None:
    rows = (
        "SwitchName=core Switches=spine[1-4]\n"
        "SwitchName=spine1 Switches=leaf[1-2]\n"
        "SwitchName=spine3 Switches=leaf[3-4]\nSwitchName=spine4 Switches=leaf[4,3]\n"
    )
    rows += "SwitchName=spine2 Switches=leaf[1-2]\n"
    rows += "".join(f"SwitchName=leaf{i} Nodes=n{i}\n" for i in range(1, 5))
    built = read(rows, "slurm")
    assert tree(built.fabric) == {
        "n1": "spine1/leaf1",
        "n2": "spine1/leaf2",
        "n3": "spine3/leaf3",
        "n4": "spine3/leaf4",
    }
    assert "spine4, spine2: parallel to another switch, counted once" in built.notes


def test_other_files_are_not_followed(refused: Refused) -> None:
    told = refused("\ninclude racks.conf\n", "slurm")
    assert told.startswith("file:2: Include: is not followed: `scontrol show topology` prints")


def test_refused_in_a_tree(refused: Refused) -> None:
    for row, says in [
        ("SwitchName=rack4 Nodes=n01", "9: rack4: host n01 is under rack1 and under rack4"),
        ("SwitchName=z Switches=rack1", "9: z: switch rack1 is under zone1 and under z"),
        ("SwitchName=rack1 Nodes=z1", "9: rack1: is defined twice, first in line 6"),
        ("SwitchName=z Switches=rack7", "9: z: names a switch 'rack7' that no line defines"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "9: a: is in, or below, a circle"),
        ("SwitchName=a Nodes=z1 Switches=rack1", "9: a: has both hosts and switches below"),
        ("SwitchName=a Nodes=z[3-1]", "9: nodes: range 3-1 runs backwards"),
        ("SwitchName=a Nodes=ALL", "9: nodes: ALL stands for the hosts of slurm.conf"),
        ("SwitchName=a Nodes=x, y", "9: 'y' is not KEY=VALUE"),
        ("SwitchName=a Nods=z1", "9: nods: unknown key; known on this line are switchname,"),
        ("SwitchName=a Nodes=x Nodes=y", "9: Nodes: is given twice in one line"),
        ("SwitchName=a[1-2] Nodes=z1", "9: switchname: must be one name, not 'a[1-2]'"),
        ("Nodes=z1", "9: has no SwitchName, BlockName or BlockSizes, only nodes"),
        ("BlockName=b Nodes=z1", "9: is about blocks, and the file has switches"),
        ("RingName=r Nodes=z1", "9: RingName: a ring has no tiers"),
    ]:
        assert refused(TREE + row + "\n", "slurm").startswith(f"file:{says}")


def test_a_very_deep_tree_is_refused(refused: Refused) -> None:
    rows = [f"SwitchName=s{i} Switches=s{i + 1}" for i in range(2_000)]
    told = refused("\n".join([*rows, "SwitchName=s2000 Nodes=a"]), "slurm")
    assert told.startswith("file:17: s16: is below 16 other switches")


BLOCKS = "BlockName=b1 Nodes=n[01-04]\nBlockName=b2 Nodes=n[05-09]\nBlockSizes=4,8,32\n"


def test_a_tree_as_scontrol_prints_it(read: Read) -> None:
    """Upper switches list all hosts below them too."""
    rows = (
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[0-1] \n"
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[2-3] \n"
        "SwitchName=z0 Level=1 LinkSpeed=1 Nodes=n[0-3] Switches=s[0-1] \n"
        "SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n[4-5] \n"
        "SwitchName=z1 Level=1 LinkSpeed=1 Nodes=n[4-5] Switches=s2 \n"
    )
    above = ["z0/s0", "z0/s0", "z0/s1", "z0/s1", "z1/s2", "z1/s2"]
    assert tree(read(rows, "slurm").fabric) == {f"n{i}": path for i, path in enumerate(above)}


def test_blocks_as_scontrol_prints_them(read: Read) -> None:
    rows = (
        "BlockName=b1 BlockIndex=0 Nodes=n[0-1] BlockSize=2\n"
        "BlockName=b2 BlockIndex=1 Nodes=n[2-3] BlockSize=2\n"
        "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[0-3] BlockSize=4\n"
    )
    found = read(rows, "slurm").fabric
    assert tree(found) == {"n0": "b1", "n1": "b1", "n2": "b2", "n3": "b2"}
    assert found.has_scale_up_tier


def test_blocks_are_what_one_nvlink_joins_and_trees_join_none_by_themselves(
    read: Read,
) -> None:
    found = read(BLOCKS, "slurm").fabric
    assert found.scale_up_by_host.tolist() == [0] * 4 + [4] * 5
    assert set(found.by_host.scale_up_gbps) == {7_200.0}
    tiers = "tiers: [{name: rack, scale_up: %s}, {name: host}]\n"
    slower = read(BLOCKS, "slurm", tiers % "{gbps_per_gpu: 3600}").fabric
    assert set(slower.by_host.scale_up_gbps) == {3_600.0}
    apart = read(BLOCKS, "slurm", tiers % "null").fabric
    assert not apart.has_scale_up_tier
    rows = "SwitchName=r1 Nodes=a,b\nSwitchName=r2 Nodes=c\n"
    assert not read(rows, "slurm").fabric.has_scale_up_tier
    tier = "{name: rack, domains: {r1: {scale_up: {gbps_per_gpu: 7200}}}}"
    found = read(rows, "slurm", f"tiers: [{tier}, {{name: host}}]\n").fabric
    assert found.scale_up_by_host.tolist() == [0, 0, 2]


YAML = """\
---
- topology: wide
  tree:
    switches:
      - {switch: core, children: "rack[1-2]"}
      - switch: rack1
        nodes: n[01-02]
      - switch: rack2
        nodes: n[03-04]
- topology: nvl
  cluster_default: True
  block:
    block_sizes: [2]
    blocks:
      - {block: b1, nodes: "n[01-04]"}
- topology: none
  flat: true
"""


def test_the_default_topology_is_taken_or_the_one_that_is_named(
    read: Read, refused: Refused
) -> None:
    assert read(YAML, "slurm-yaml").fabric.tiers[0].domains == ("b1",)
    named = read(YAML, "slurm-yaml", topology="wide").fabric
    assert named.tiers[0].domains == ("rack1", "rack2")
    said = refused(YAML, "slurm-yaml", topology="none")
    assert said.startswith("file:17: 2.flat: has no tiers")
    said = refused(YAML, "slurm-yaml", topology="x")
    assert said == "file: has no topology 'x'; it has wide, nvl, none"


def test_yaml_of_another_shape(refused: Refused) -> None:
    for text in ["tree: {}\n", "- {topology: a, tree: {switches: []}}\n"]:
        assert refused(text, "slurm-yaml").startswith("file")


def test_refused_in_yaml(refused: Refused) -> None:
    for old, new, says in [
        ("default: True", "default: no", ": has no default; choose one with --topology"),
        ("flat: true", "flat: true\n  tree: {}", ":16: 2: must have one of tree, block and flat"),
        ("topology: none", "topology: wide", ":16: 2.topology: names a topology for the second"),
        ('nodes: "n[01-04]"', "nodes: 7", ":15: 1.block.blocks.0.nodes: must be a name or range"),
        ("block: b1, ", "", ":15: 1.block.blocks.0: has no name: `block` is missing"),
        ("block: b1, ", "block: b1, size: 4, ", ":15: 1.block.blocks.0.size: unknown key; known"),
        ("block_sizes", "sizes", ":13: 1.block.sizes: unknown key; known are block_sizes, blocks"),
    ]:
        topology = "none" if "tree: {}" in new else None if new.endswith("no") else "nvl"
        assert refused(YAML.replace(old, new, 1), "slurm-yaml", topology=topology).startswith(
            f"file{says}"
        )

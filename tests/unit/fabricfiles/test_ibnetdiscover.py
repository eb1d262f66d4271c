"""ibnetdiscover: records, names, and the tiers that follow from cables."""

from itertools import count, product

import pytest

from tests.unit.fabricfiles.conftest import Read, Refused, tree


class Cluster:
    """Writes the file that ibnetdiscover prints of switches, adapters and cables."""

    def __init__(self) -> None:
        self.text: dict[str, str] = {}
        self.ports: dict[str, list[tuple[str, int, str]]] = {}
        self._guid = count(0xA000)

    def add(self, kind: str, description: str) -> str:
        guid = f"{kind}-{next(self._guid):016x}"
        self.text[guid], self.ports[guid] = description, []
        return guid

    def cable(self, a: str, b: str, speed: str = " 4xNDR", times: int = 1) -> None:
        for _ in range(times):
            here, there = len(self.ports[a]) + 1, len(self.ports[b]) + 1
            self.ports[a].append((b, there, speed))
            self.ports[b].append((a, here, speed))

    def __str__(self) -> str:
        rows = ["#", "# Topology file: generated on Wed Aug  6 16:11:23 2025", "#", ""]
        for guid, ports in self.ports.items():
            kind = "Switch" if guid[0] == "S" else "Ca"
            tail = " enhanced port 0 lid 73 lmc 0" if kind == "Switch" else ""
            rows += ["vendid=0x2c9", "devid=0xd2f2", f"sysimgguid=0x{guid[2:]}"]
            rows += [f"{kind.lower()}guid=0x{guid[2:]}({guid[2:]})"]
            rows += [f'{kind}\t{len(ports)} "{guid}"\t\t# "{self.text[guid]}"{tail}']
            rows += [self.port(kind, i, *port) for i, port in enumerate(ports, 1)]
            rows.append("")
        return "\n".join(rows)

    def port(self, kind: str, number: int, peer: str, there: int, speed: str) -> str:
        bracket = f"({peer[2:]}) " if peer[0] == "H" else ""
        if kind == "Ca":
            words = f'# lid 7 lmc 0 "{self.text[peer]}" lid 9{speed}'
            return f'[{number}](e09d)\t"{peer}"[{there}]\t\t{words}'
        return f'[{number}]\t"{peer}"[{there}]{bracket}\t\t# "{self.text[peer]}" lid 12{speed}'


def rails(units: int = 4, hosts: int = 3, adapters: int = 2, uplinks: int = 1) -> Cluster:
    """Scalable units of rails: two units to a pod with a spine, a core above all."""
    made = Cluster()
    core = made.add("S", "MF0;CORE-01:MQM9700/U1")
    spines = [made.add("S", f"MF0;SPINE-{i + 1:02d}:MQM9700/U1") for i in range(units // 2)]
    for spine in spines:
        made.cable(spine, core)
    for unit in range(units):
        leaves = [made.add("S", f"MF0;LEAF-{unit}-{r}:MQM9700/U1") for r in range(adapters)]
        for leaf in leaves:
            made.cable(leaf, spines[unit // 2], times=uplinks)
        for host, rail in product(range(hosts), range(adapters)):
            made.cable(made.add("H", f"u{unit}n{host + 8} mlx5_{rail}"), leaves[rail])
    return made


def test_units_are_what_hosts_join_and_pods_what_spines_join(read: Read) -> None:
    built = read(str(rails()), "ibnetdiscover")
    assert tree(built.fabric) == {
        f"u{unit}n{host}": f"SPINE-{unit // 2 + 1:02d}/LEAF-{unit}-0"
        for unit in range(4)
        for host in (8, 9, 10)
    }
    assert [tier.name for tier in built.fabric.tiers] == ["spine", "leaf"]
    made = rails()
    made.ports = dict(reversed(made.ports.items()))  # the order of records does not matter
    assert read(str(made), "ibnetdiscover").fabric == built.fabric
    assert built.notes == (
        "hosts have 2 adapters each, and as many GPUs unless gpus_per_host of an overlay says else",
        "dropped: CORE-01, above every host and so no boundary",
    )


def test_bandwidths_come_from_adapters_and_cables(read: Read) -> None:
    """Units: 3 hosts x 2 NDR into 2 NDR up; pods: two units' 12 NDR into 1 up."""
    found = read(str(rails(uplinks=1)), "ibnetdiscover").fabric
    assert (found.kind, found.gpus_per_host, found.nic_gbps) == ("infiniband", 2, 400)
    gbyte = 400e9 / 8
    assert found.tiers[1].uplink_bytes_per_s.tolist() == [2 * gbyte] * 4
    assert found.tiers[0].uplink_bytes_per_s.tolist() == pytest.approx([gbyte] * 2)
    found = read(str(rails(uplinks=5)), "ibnetdiscover").fabric  # adapters send no more than this
    assert found.tiers[1].uplink_bytes_per_s.tolist() == [3 * 2 * gbyte] * 4
    speeds = {"4xHDR": 200, "2xHDR": 100, "4xFDR10": 40, "4xXDR": 800, "4xFDR": 56}
    for speed, gbps in speeds.items():
        text = str(rails()).replace("4xNDR", speed)
        assert read(text, "ibnetdiscover").fabric.nic_gbps == gbps


def test_one_cable_without_a_speed_and_nothing_is_derived(read: Read) -> None:
    made = rails()
    made.cable(*list(made.ports)[:2], speed="")
    built = read(str(made), "ibnetdiscover")
    assert built.fabric.tiers[0].uplink_bytes_per_s.tolist() == [6 * 8 * 50e9] * 2
    assert built.notes[-1].startswith("assumed: 8 GPUs a host, 400 Gbit/s each, full")


def test_the_overlay_has_the_last_word(read: Read) -> None:
    tiers = "tiers: [{name: pod}, {name: su, oversubscription: 1}, {name: host}]"
    overlay = f"gpus_per_host: 8\nnic_gbps: 50\n{tiers}\n"
    found = read(str(rails()), "ibnetdiscover", overlay).fabric
    assert [tier.name for tier in found.tiers] == ["pod", "su"]
    assert found.tiers[1].uplink_bytes_per_s.tolist() == [3 * 8 * 50e9 / 8] * 4


def test_adapters_without_a_host_are_left_out(read: Read) -> None:
    made = rails()
    leaf = next(guid for guid, text in made.text.items() if "LEAF" in text)
    made.cable(made.add("H", "Mellanox Technologies Aggregation Node"), leaf)
    made.cable(made.add("H", "MT4129 ConnectX7   Mellanox Technologies"), leaf)
    built = read(str(made), "ibnetdiscover")
    assert len(built.fabric.hosts) == 12
    assert "Aggregation Node" in built.notes[0]


def test_a_manager_on_two_units_joins_them_until_it_is_left_out(read: Read) -> None:
    made = rails()
    leaves = [next(g for g, t in made.text.items() if f"LEAF-{unit}-0" in t) for unit in (0, 1)]
    for leaf in leaves:
        made.cable(made.add("H", "ufm01 mlx5_0"), leaf)
    glued = read(str(made), "ibnetdiscover")
    assert len(glued.fabric.tiers[1].domains) == 3
    made.cable(made.add("H", "ufm01 mlx5_1"), leaves[0])
    assert any("ufm01: not 2 adapters" in note for note in read(str(made), "ibnetdiscover").notes)
    kept = read(str(made), "ibnetdiscover", hosts="u[0-9]n.*")
    assert len(kept.fabric.tiers[1].domains) == 4


def test_two_switches_back_to_back_are_two_domains(read: Read) -> None:
    made = Cluster()
    switches = [made.add("S", f"sw{i}") for i in range(2)]
    made.cable(*switches, times=2)
    for i in range(4):
        made.cable(made.add("H", f"n{i} HCA-1"), switches[i // 2])
    found = read(str(made), "ibnetdiscover").fabric
    assert tree(found) == {"n0": "sw0", "n1": "sw0", "n2": "sw1", "n3": "sw1"}


def test_nameless_switches_go_by_their_number(read: Read) -> None:
    made = rails()
    made.text = {
        g: "Quantum Mellanox Technologies" if g[0] == "S" else t for g, t in made.text.items()
    }
    found = read(str(made), "ibnetdiscover").fabric
    assert len(found.tiers[1].domains) == 4
    assert all(name.startswith("S-") for name in found.tiers[1].domains)


def test_adapters_alone_tell_the_leaves(read: Read) -> None:
    """A file cut to its Ca records still has both ends of their cables."""
    records = [r for r in str(rails()).split("\n\n") if "\nCa\t" in r]
    found = read("\n\n".join(records), "ibnetdiscover").fabric
    assert len(found.tiers) == 1
    assert len(found.tiers[0].domains) == 4


def test_refused(refused: Refused) -> None:
    for text, says in [
        ("", "file: has no host with a name on a switch"),
        ('Ca\t1 "H-b8e9"\t\t# "dgx-n01-c1 HCA-1"\n', "file: has no host with a name on a switch"),
        ("# ok\n\nSwitch=a\n", "file:3: 'Switch=a' is not a line of ibnetdiscover"),
    ]:
        assert refused(text, "ibnetdiscover") == says

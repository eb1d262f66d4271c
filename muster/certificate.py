"""The format of certificate files: which fields they have, and of what kind each is.

docs/verify.md describes them. Standard library alone, as `verify`, which checks what they claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from muster.form import (
    Malformed,
    by_name,
    check,
    count,
    digest,
    non_negative,
    one_of,
    positive,
    ratio,
    runs,
    share,
    signed,
    text,
    truth,
    word,
)

__all__ = ["FORMAT", "SEALED", "Certificate", "Malformed", "digest"]

FORMAT = "muster certificate 1"
SEALED = ("fabric", "free", "job", "claims")  # parts with a digest each
DECISIONS = ("start", "swap", "resize", "dry run")  # of a server, on a placement
SYNCS = ("step", "micro_batch")  # how often parameters and gradients are exchanged
SCHEDULES = ("1f1b", "zero_bubble", "dualpipe")
PATTERNS = ("ring", "chain", "hierarchical", "all_to_all", "pairs", "tree")
MOST_BRANCHES = 200  # one below the other


def axis(value: Any, path: str) -> None:
    """An axis; that of a role says also which ranks it has, and trees how many lie on a host."""
    said = value if isinstance(value, dict) else {}
    of_role, is_tree = "ranks" in said, said.get("pattern") == "tree"
    check(value, AXIS | (RANKS if of_role else {}) | (NODE if is_tree else {}), path)
    if is_tree and said["size"] % said["node"]:
        raise Malformed(path, "ranks on a host must divide those of a group")
    if value["pattern"] == "pairs" and not (of_role and value["ranks"] < value["size"]):
        raise Malformed(path, "pairs are of the ranks of one role and those of another")


def counter(value: Any, path: str) -> None:
    """Check a counter: how many zones hold `least` slots of a row, or what they climb on
    stairs."""
    shapes = (shape for shape in (LEAST, STAIRS) if value.keys() == shape.keys())
    check(value, next(shapes, LEAST), path)


def step_or_none(shape: dict[str, Any]) -> Callable[[Any, str], None]:
    """Return what accepts None, or such a mapping: for jobs that say what they compute."""
    return lambda value, path: None if value is None else check(value, shape, path)


def proof(value: Any, path: str) -> None:
    one_of(value, path, "by", {"nothing": {}, "sizes": SIZES, "prices": PRICES})


def tree(value: Any, path: str, depth: int = 0) -> None:
    """The tree of branches: the number of a leaf's prices, or a counter that parts two subtrees."""
    if depth > MOST_BRANCHES:
        raise Malformed(path, "branches too deep")
    if isinstance(value, dict):
        below = partial(tree, depth=depth + 1)
        check(
            value,
            {"counter": non_negative, "at_most": non_negative, "below": below, "above": below},
            path,
        )
    else:
        non_negative(value, path)


RUNS = [[non_negative]]  # pairs of a value and how often it comes, one after the other
LEAST = {"row": signed, "least": count}
STAIRS = {"row": signed, "rise": positive, "run": positive, "top": positive}
SIZES = {"charge": text}
PRICES = {
    "charge": text,
    "scale": positive,
    "counters": [counter],
    "prices": [{"rows": [signed], "counters": [[signed]]}],
    "tree": tree,
}
STEP_FACTS = {
    "compute_s": ratio,
    "least_compute_s": ratio,
    "most_compute_s": ratio,
    "pipeline": {
        "stages": count,
        "chunks": count,
        "micro_batches": count,
        "schedule": word(*SCHEDULES),
    },
    "sync": word(*SYNCS),
    "gradients_alone": truth,
    "state": partial(by_name, of=share),
    "exposed": partial(by_name, of=ratio),
    "last_layer": share,
}
STEP_CLAIM = dict.fromkeys(("seconds", "least_seconds", "engine_least_seconds"), ratio)
CLAIMS = {
    "hosts": [text],
    "spares": [text],
    "cuts": [{"tier": text, "bytes": non_negative, "by_axis": by_name}],
    "bounds": [{"tier": text, "bytes": non_negative, "engine_bytes": non_negative, "proof": proof}],
    "step": step_or_none(STEP_CLAIM),
    "decision?": {  # of a server
        "kind": word(*DECISIONS),
        "uid": text,
        "attempt": non_negative,
        "version": non_negative,
        "time": text,
    },
}
AXIS = {
    "axis": text,
    "size": count,
    "stride": count,
    "pattern": word(*PATTERNS),
    "edge_bytes": non_negative,
    "wrap_bytes": non_negative,
}
RANKS = {"first": non_negative, "ranks": count, "to": non_negative}
NODE = {"node": count}
ROLE = {
    "name": text,
    "first": non_negative,
    "ranks": count,
    "same": text,
    "segment": non_negative,
    "within": [{"size": count, "stride": count, "tier": text}],
    "beside": [{"tier": text, "roles": [text]}],
    "avoid": [{"tier": text, "roles": [text]}],
}
JOB = {
    "name": text,
    "gpus_per_host": count,
    "ranks": count,
    "labels": [text],
    "same": text,
    "max_zones": non_negative,
    "segment": non_negative,
    "within": [{"axis": text, "tier": text}],
    "traffic": [axis],
    "step": step_or_none(STEP_FACTS),
    "roles?": [ROLE],  # of a gang of several: what constraints these have, if any
}
CERTIFICATE = {
    "format": text,
    "digests": dict.fromkeys(SEALED, text),
    "fabric": {
        "name": text,
        "digest": text,
        "hosts": [text],
        "gpus": RUNS,
        "tiers": [{"name": text, "domain_by_host": RUNS}],
        "barred": [{"tier": text, "domain": non_negative}],
        "labels": [{"label": text, "has": RUNS}],
        "links": {"scale_up": RUNS, "nic": RUNS, "joined": RUNS, "uplinks": [RUNS]},
    },
    "free": RUNS,
    "job": JOB,
    "claims": CLAIMS,
}


class Certificate:
    """Reads a certificate: its fabric, free hosts and job, and its claims.

    `number`: of each host by its name. `domain`: by tier, that of each host. `free`: hosts that the
    job may have. `blocks`: hosts that it needs.
    """

    def __init__(self, content: Any) -> None:
        """Raises: Malformed."""
        check(content, CERTIFICATE)
        if content["format"] != FORMAT:
            raise Malformed("format", f"must be {FORMAT!r}")
        fabric, self.job, self.claims = content["fabric"], content["job"], content["claims"]
        self.fabric, self.barred, names = fabric["name"], fabric["barred"], fabric["hosts"]
        self.number = {name: i for i, name in enumerate(names)}
        if len(self.number) != len(names):
            raise Malformed("fabric.hosts", "names repeat")
        many, self.domain = len(names), dict[str, list[int]]()
        for i, tier in enumerate(fabric["tiers"]):
            path = f"fabric.tiers.{i}.domain_by_host"
            self.domain[tier["name"]] = runs(tier["domain_by_host"], many, path)
        self.tiers = list(self.domain)
        if len(self.tiers) != len(fabric["tiers"]):
            raise Malformed("fabric.tiers", "names repeat")
        for outer, inner in pairwise(self.domain.values()):
            if len(set(zip(inner, outer, strict=True))) != len(set(inner)):
                raise Malformed("fabric.tiers", "an inner domain lies in two outer ones")
        self.gpus, self.ranks = self.job["gpus_per_host"], self.job["ranks"]
        self.blocks, self.traffic = self.ranks // self.gpus, self.job["traffic"]
        gpus, is_free = (
            runs(fabric["gpus"], many, "fabric.gpus"),
            runs(content["free"], many, "free"),
        )
        self.free = {h for h in range(many) if is_free[h] and gpus[h] == self.gpus}
        for label in self.job["labels"]:
            has = [each["has"] for each in fabric["labels"] if each["label"] == label]
            if len(has) != 1:
                raise Malformed("fabric.labels", f"must say once which hosts are {label}")
            labelled = runs(has[0], many, "fabric.labels")
            self.free = {host for host in self.free if labelled[host]}
        self.roles = {role["name"]: role for role in self.job.get("roles", [])}
        self._check_names()
        self._check_ranks()
        self._check_roles()
        self._check_links(fabric["links"])

    def _check_links(self, links: dict[str, Any]) -> None:
        """Speeds of hosts, in bytes in a million seconds, and of each tier's uplinks."""
        many, path = len(self.number), "fabric.links"
        kinds = ("scale_up", "nic", "joined")
        self.speeds = [runs(links[kind], many, f"{path}.{kind}") for kind in kinds]
        if not all(self.speeds[0] + self.speeds[1]):
            raise Malformed(path, "every host sends something")
        if len(links["uplinks"]) != len(self.tiers):
            raise Malformed(f"{path}.uplinks", "must be those of each tier")
        self.uplinks = [
            (domain, runs(links["uplinks"][i], max(domain) + 1, f"{path}.uplinks.{i}"))
            for i, domain in enumerate(self.domain.values())
        ]

    def _check_names(self) -> None:
        given = [("job.same", self.job["same"] or self.tiers[-1:])]
        given += [(f"fabric.barred.{i}.tier", each["tier"]) for i, each in enumerate(self.barred)]
        given += [(f"job.within.{i}.tier", w["tier"]) for i, w in enumerate(self.job["within"])]
        for i, role in enumerate(self.roles.values()):
            given.append((f"job.roles.{i}.same", role["same"] or self.tiers[-1:]))
            named = [(key, each) for key in ("within", "beside", "avoid") for each in role[key]]
            given += [(f"job.roles.{i}.{key}.tier", each["tier"]) for key, each in named]
        for kind in ("cuts", "bounds"):
            each = enumerate(self.claims[kind])
            given += [(f"claims.{kind}.{i}.tier", claim["tier"]) for i, claim in each]
        for path, tier in given:
            if tier not in (*self.tiers, self.tiers[-1:], "host" if "within" in path else None):
                raise Malformed(path, f"the fabric has no tier {tier}")
        if [each["tier"] for each in self.claims["cuts"]] != self.tiers:
            raise Malformed("claims.cuts", "must name the tiers of the fabric, in their order")

    def _check_ranks(self) -> None:
        """Raises: Malformed unless ranks count the axes, one after the other, and fill hosts; in a
        gang of roles those of each role."""
        if len({axis["axis"] for axis in self.traffic}) != len(self.traffic):
            raise Malformed("job.traffic", "axes repeat")
        self.has_roles = any("ranks" in axis for axis in self.traffic)
        roles: dict[tuple[int, int], list[dict[str, Any]]] = {}
        for axis in self.traffic:
            role = axis.get("first", 0), axis.get("ranks", self.ranks)
            roles.setdefault(role, []).extend([axis] * (axis["pattern"] != "pairs"))
            if axis["pattern"] == "pairs":
                roles.setdefault((axis["to"], axis["size"] - axis["ranks"]), [])
        if not roles:
            roles[0, self.ranks] = []
        end = 0
        for (first, ranks), axes in sorted(roles.items()):
            if first < end or (end := first + ranks) > self.ranks or first % self.gpus:
                raise Malformed("job.traffic", "roles lie one after the other, on whole hosts")
            self._check_axes(axes, ranks, may_be_silent=self.has_roles)

    def _check_roles(self) -> None:
        """Raises: Malformed unless roles lie on whole hosts, and name each other."""
        if len(self.roles) != len(self.job.get("roles", [])):
            raise Malformed("job.roles", "names repeat")
        for name, role in self.roles.items():
            ends = (role["first"], role["first"] + role["ranks"])
            spans = [role["segment"] * self.gpus or 1]
            spans += [each["size"] * each["stride"] for each in role["within"]]
            if ends[1] > self.ranks or any(end % self.gpus for end in ends):
                raise Malformed(f"job.roles.{name}", "must lie on whole hosts of the job")
            if any(role["ranks"] % span for span in spans):
                raise Malformed(f"job.roles.{name}", "groups and segments must divide its ranks")
            others = [
                other for key in ("beside", "avoid") for e in role[key] for other in e["roles"]
            ]
            if any(other not in self.roles for other in others):
                raise Malformed(f"job.roles.{name}", "names a role that there is not")

    def _check_axes(
        self, axes: list[dict[str, Any]], of: int, *, may_be_silent: bool = False
    ) -> None:
        ranks = 1
        for axis in sorted(axes, key=lambda axis: int(axis["stride"])):
            if axis["stride"] != ranks or axis["size"] == 1:
                raise Malformed("job.traffic", f"{axis['axis']}: ranks count axis by axis")
            ranks *= axis["size"]
        if (ranks != of and (axes or not may_be_silent)) or of % self.gpus:
            raise Malformed("job.ranks", f"{of:,}: the axes make {ranks:,}, in whole hosts")
        if sum(axis["pattern"] == "chain" for axis in axes) > 1:
            raise Malformed("job.traffic", "one axis at most is a chain")


def groups_of(axis: dict[str, Any], at: list[int]) -> Iterator[list[int]]:
    """Yield the entries of `at` of the ranks of each group of an axis."""
    size, stride, of = axis["size"], axis["stride"], axis.get("first", 0)
    if axis["pattern"] == "pairs":
        yield at[of : of + axis["ranks"]] + at[axis["to"] : axis["to"] + size - axis["ranks"]]
        return
    at = at[of : of + axis.get("ranks", len(at))]
    for first in range(0, len(at), size * stride):
        yield from (at[first + k : first + size * stride : stride] for k in range(stride))

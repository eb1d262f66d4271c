"""One job for several clusters, each a muster of its own: made by one of them, and by one only.

All are asked at once what the job would get, the best one is chosen, and it alone is sent the job.
Nothing is kept here: another caller, or the same command again, goes on from what clusters know.
Why there is never a second job, and what is done when answers are lost, is in docs/route.md; a
*round* (ID, ID#2, ...) is over when no cluster can have a majority any more.

Enters: clients, and a job. Leaves: the job and where it is, or why it is nowhere or not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from muster.structs import replace, struct
from scheduler.client.connection import ServiceError
from scheduler.client.offers import Offer, offer_of, rank
from scheduler.files.errors import InputError, Problem
from scheduler.v1 import fabric_pb2, job_pb2

if TYPE_CHECKING:
    from scheduler.core import JobSpec

NOBODY: Final = "nobody"
MOST_ROUNDS: Final = 100  # each refusal, or two calls at once, may cost one
MOST_LOOKS: Final = 18  # what others change meanwhile, or a refusal, makes one more necessary
_TRIES = 2  # of a submit whose answer is lost, each with the client's own retries

# The cluster has read the job, and says why it will not have it.
_REFUSALS = ("INVALID", "INFEASIBLE", "NOT_FOUND", "WRONG_STATE")

Result = TypeVar("Result")


class RoutedCluster(Protocol):
    """What is asked of a cluster; scheduler.client.Client does it. Raises: ServiceError."""

    def get_fabric(self) -> fabric_pb2.Fabric: ...

    def offer(self, spec: JobSpec, request_id: str) -> job_pb2.Job: ...

    def leave_job(self, spec: JobSpec, request_id: str, elsewhere: str) -> None: ...

    def create_job(self, spec: JobSpec, request_id: str) -> job_pb2.Job: ...


@struct(frozen=True, slots=True)
class ClusterView:
    """What a cluster says about a request. `id`: which one it is, "" while it has not
    answered; `fabric`: its name.

    One of these is set: `made`, the job; `left`, the id of the cluster that the job is left to, and
    `owner`, the name of its fabric;
    `offer`, what it would get; `refusal`, why it cannot have it; `silence`, why nothing is known.
    """

    name: str
    id: str = ""
    fabric: str = ""
    made: job_pb2.Job | None = None
    left: str = ""
    owner: str = ""
    offer: Offer | None = None
    refusal: str = ""
    silence: str = ""

    @property
    def label(self) -> str:
        """As others remember it."""
        return f"{self.fabric}/{self.id}"

    @property
    def is_open(self) -> bool:
        """Whether the request has done nothing there, as far as is known."""
        return self.made is None and not self.left


@struct(frozen=True, slots=True)
class Routed:
    """The job is in `cluster`. `is_repeat`: an earlier call made it. `views`: of all clusters, as
    they were before."""

    cluster: str
    job: job_pb2.Job
    request_id: str
    is_repeat: bool
    views: tuple[ClusterView, ...]


@struct(frozen=True, slots=True)
class NotRouted:
    """No cluster has the job, or will have it by this call. `reason` is a sentence."""

    reason: str
    views: tuple[ClusterView, ...] = ()
    is_infeasible: bool = False


@struct(frozen=True, slots=True)
class Unknown:
    """Nobody can say now whether a cluster has the job. `cluster`: that might have it, ""
    for any that is silent."""

    reason: str
    request_id: str
    cluster: str = ""
    views: tuple[ClusterView, ...] = ()


Outcome = Routed | NotRouted | Unknown


@dataclass(slots=True)
class Router:
    """`clusters`: by the caller's names, in the order of preference where offers are equal.

    `is_new`: the caller knows that this job was never submitted; then half of the clusters
    suffice where else a majority is needed: of two, one. That ends when a cluster is sent the
    job: the other half may be the ones that answer next.
    """

    clusters: Mapping[str, RoutedCluster]
    is_new: bool = False
    _refused: dict[str, str] = field(default_factory=dict)

    def look(self, spec: JobSpec, request_id: str) -> tuple[ClusterView, ...]:
        """What each cluster says, all asked at once; changes nothing.

        Raises: InputError where two names mean the same cluster.
        """
        views = in_parallel(
            partial(_view, name, cluster, spec, request_id)
            for name, cluster in self.clusters.items()
        )
        _check_apart(views)
        return tuple(views)

    def newest(self, spec: JobSpec, request_id: str) -> tuple[str, tuple[ClusterView, ...]]:
        """The id of the first round that is not over, and what each cluster says of that.

        Raises: InputError where two names mean the same cluster.
        """
        round_id, number = request_id, 1
        while is_over(views := self.look(spec, round_id)) and number < MOST_ROUNDS:
            number += 1
            round_id = f"{request_id}#{number}"
        return round_id, views

    def submit(self, spec: JobSpec, request_id: str) -> Outcome:
        """Have the job made by the best cluster, unless it is made already.

        Raises: InputError where two names mean the same cluster.
        """
        for _ in range(MOST_LOOKS):
            outcome = self._round(spec, *self.newest(spec, request_id))
            if outcome is not None:
                return outcome
        return Unknown("the clusters keep changing their answers; try again", request_id)

    def _round(
        self, spec: JobSpec, request_id: str, views: tuple[ClusterView, ...]
    ) -> Outcome | None:
        """None: something has changed meanwhile, look again."""
        for view in views:
            if view.made is not None:
                return Routed(view.name, view.made, request_id, True, views)
        if (namesake := _namesake(views)) is not None:
            return NotRouted(namesake, views)
        target = _target(views, self._refused, request_id)
        if not isinstance(target, ClusterView):
            return target
        needed = others_needed(len(views), is_new=self.is_new and not any(v.left for v in views))
        others = [view for view in views if view is not target]
        left = sum(view.left == target.id for view in others)
        able = [view for view in others if view.is_open and not view.silence]
        if left + sum(view.is_open for view in others) < needed:
            self._close(spec, request_id, views)
            return None
        if left + len(able) < needed:
            return _too_few(request_id, views, needed)
        for view in sorted(able, key=lambda view: view.id):  # two callers meet at the first one
            try:
                self.clusters[view.name].leave_job(spec, request_id, target.label)
                left += 1
            except ServiceError as error:
                if _is_about_the_id(error):
                    return None
        if left < needed:
            return _too_few(request_id, views, needed)
        return self._create(spec, request_id, target, views)

    def _close(self, spec: JobSpec, request_id: str, views: Sequence[ClusterView]) -> None:
        """End a round in which nobody can have a majority."""
        for view in views:
            if view.is_open and not view.silence:
                with suppress(ServiceError):  # the next look says what has come of it
                    self.clusters[view.name].leave_job(spec, request_id, NOBODY)

    def _create(
        self, spec: JobSpec, request_id: str, target: ClusterView, views: tuple[ClusterView, ...]
    ) -> Outcome | None:
        cluster = self.clusters[target.name]
        self.is_new = False
        for _ in range(_TRIES):
            try:
                job = cluster.create_job(spec, request_id)
            except ServiceError as error:
                failure = error
                if error.reason in _REFUSALS or error.reason == "ALREADY_EXISTS":
                    break
            else:
                return Routed(target.name, job, request_id, False, views)
        try:
            cluster.leave_job(spec, request_id, NOBODY)
        except ServiceError as error:
            if _is_about_the_id(error):
                return None  # it has made the job, or somebody else left it: look
            return Unknown(
                f"{target.name} was sent the job and does not say whether it has it:"
                f" {error.message}",
                request_id,
                target.name,
                views,
            )
        self._refused[target.name] = failure.message
        return None


def others_needed(count: int, *, is_new: bool) -> int:
    """How many of `count` clusters must leave the job to another one before that is sent it.

    With it they are a majority. Of a new job half of them, rounded up, shares a cluster with every
    majority that a later call needs.
    """
    return (count - count // 2 if is_new else count // 2 + 1) - 1


def is_over(views: Sequence[ClusterView]) -> bool:
    """Whether no cluster can be sent the job by this id any more, nor has it. True for ever once it
    is true."""
    if any(view.made is not None for view in views):
        return False
    return not any(_may_win(view, views) for view in views)


def _may_win(view: ClusterView, views: Sequence[ClusterView]) -> bool:
    """Whether so many others have left the job to it, or still may, that it may be sent it."""
    others = [other for other in views if other is not view]
    free = sum(other.is_open for other in others)
    if view.id:
        free += sum(other.left == view.id for other in others)
    else:  # who has not answered may be any that others name
        known = {each.id for each in views}
        named = [other.left for other in others if other.left not in known | {NOBODY, ""}]
        free += max((named.count(each) for each in set(named)), default=0)
    return view.is_open and free >= others_needed(len(views), is_new=True)


def _target(
    views: tuple[ClusterView, ...], refused: Mapping[str, str], request_id: str
) -> ClusterView | Outcome:
    """The cluster to send the job to; or what comes of the request where there is none: the one
    that others have left it to does not answer, none answers, or none takes it."""
    named = [view.left for view in views if view.left and view.left != NOBODY]
    by_id = {view.id: view for view in views if view.id}
    for each in sorted(set(named), key=lambda each: (-named.count(each), each)):
        view = by_id.get(each)
        if view is not None and not _may_win(view, views):
            continue
        if view is None or view.silence:
            return _unanswered(request_id, each, views)
        return view
    offers = {
        view.name: view.offer
        for view in views
        if view.offer is not None and _may_win(view, views) and view.name not in refused
    }
    best = next((name for name in rank(offers) if not offers[name].is_impossible), None)
    if best is not None:
        return next(view for view in views if view.name == best)
    if all(view.silence for view in views):
        return _unanswered(request_id, "", views)
    against = {view.name: refused.get(view.name) or _against(view) for view in views}
    return _nowhere(against, views, request_id)


def _nowhere(
    against: Mapping[str, str], views: tuple[ClusterView, ...], request_id: str
) -> Outcome:
    why = "; ".join(f"{name}: {text}" for name, text in against.items())
    if any(view.silence and _may_win(view, views) for view in views):
        reason = f"no cluster that answers takes the job, and others may have it: {why}"
        return Unknown(reason, request_id, "", views)
    impossible = all(view.offer is not None and view.offer.is_impossible for view in views)
    return NotRouted(f"no cluster takes the job: {why}", views, impossible)


def _against(view: ClusterView) -> str:
    if view.offer is not None:
        return view.offer.reason
    return view.refusal or view.silence or f"has left it to {view.owner}"


def _unanswered(request_id: str, target: str, views: tuple[ClusterView, ...]) -> Unknown:
    """An earlier call has chosen a cluster that does not answer now; "": none answers."""
    if not target:
        return Unknown(f"no cluster answers: {_silences(views)}", request_id, "", views)
    known = next((view.name for view in views if view.id == target), "")
    owner = known or next(view.owner for view in views if view.left == target)
    reason = f"an earlier submit has left the job to {owner}, which does not answer"
    if not known and any(view.silence for view in views):
        reason += " or is not one of the clusters named"
    elif not known:
        reason = (
            f"an earlier submit has left the job to {owner}, which is not one of these clusters"
        )
    silences = _silences(views)
    reason += f"; {silences}" if silences else ""
    return Unknown(reason, request_id, owner, views)


def _too_few(request_id: str, views: tuple[ClusterView, ...], needed: int) -> Unknown:
    silent = _silences(views)
    why = (
        f"of {len(views)} clusters, {needed + 1} must answer before the job is sent to one, for the"
        f" others may have it already; {silent or 'the answers of some were lost'}"
    )
    return Unknown(why, request_id, "", views)


def _silences(views: Sequence[ClusterView]) -> str:
    return "; ".join(f"{view.name}: {view.silence}" for view in views if view.silence)


def _namesake(views: Sequence[ClusterView]) -> str | None:
    """What speaks against any submit: a job of this name that another request made."""
    for view in views:
        if view.refusal.startswith(_TAKEN):
            return view.refusal.removeprefix(_TAKEN)
    return None


_TAKEN = "taken: "


def _view(name: str, cluster: RoutedCluster, spec: JobSpec, request_id: str) -> ClusterView:
    view = ClusterView(name)
    try:
        fabric = cluster.get_fabric()
        # Clusters that are built alike have the same uid, and began at other moments.
        began = fabric.create_time.ToJsonString()
        view = ClusterView(name, f"{fabric.uid}@{began}", fabric.name)
        answer = cluster.offer(spec, request_id)
    except ServiceError as error:
        return _without_offer(view, error)
    if answer.uid:
        return replace(view, made=answer)
    return replace(view, offer=offer_of(answer))


def _without_offer(view: ClusterView, error: ServiceError) -> ClusterView:
    if not view.id:
        return replace(view, silence=error.message)
    if left := error.metadata.get("elsewhere", ""):
        owner, _, identity = left.rpartition("/")
        return replace(view, left=identity, owner=owner or identity)
    if _is_about_the_id(error):
        other = f"{view.name} knows this request from another job file: {error.message}"
        return replace(view, refusal=f"{_TAKEN}{other}")
    if error.reason == "ALREADY_EXISTS":
        return replace(view, refusal=f"{_TAKEN}{view.name}: {error.message}")
    if error.reason in _REFUSALS:
        return replace(view, refusal=error.message)
    return replace(view, silence=error.message)


def _is_about_the_id(error: ServiceError) -> bool:
    """Whether the request's id has done something else there."""
    return any(path == "request_id" for path, _ in error.violations)


def _check_apart(views: Sequence[ClusterView]) -> None:
    names: dict[str, str] = {}
    for view in views:
        if view.id and (other := names.setdefault(view.id, view.name)) != view.name:
            reason = f"{other} and {view.name} are the same cluster, of fabric {view.fabric}"
            raise InputError(Problem("--context", reason))


def in_parallel(calls: Iterable[Callable[[], Result]]) -> list[Result]:
    """Their results, in their order. Raises: what one of them raises."""
    each = list(calls)
    with ThreadPoolExecutor(max(1, len(each)), "muster-route") as threads:
        return list(threads.map(lambda call: call(), each))

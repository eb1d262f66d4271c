"""Servicers of several subjects, joined to one service."""

import pytest

from scheduler.service.backend import Backend
from scheduler.service.errors import ApiError
from scheduler.service.rpc.cluster.hosts import HostServicer
from scheduler.service.rpc.service import SERVICE, join_servicers, scheduler_service


def test_every_method_of_the_service_has_one_servicer() -> None:
    service = scheduler_service(Backend(), lambda: "uid")
    assert set(vars(service)) == {method.name for method in SERVICE.methods}


def test_a_method_without_a_servicer_is_named() -> None:
    with pytest.raises(TypeError, match="CreateJob is defined by no servicer"):
        join_servicers([HostServicer(Backend())])


def test_a_method_with_two_servicers_is_named() -> None:
    def CreateJob() -> None:
        """Stands for a method of the service."""

    first, second = (type(name, (), {"CreateJob": CreateJob})() for name in ("A", "B"))
    with pytest.raises(TypeError, match="CreateJob is defined by A, B"):
        join_servicers([first, second])


def test_a_backend_without_a_writer_says_that_the_server_starts() -> None:
    backend = Backend()
    assert backend.state is None
    with pytest.raises(ApiError, match="it is replaying its log"):
        _ = backend.writer

"""The conformance steps by grpcio: run.py ADDRESS STEPS. One line a step; exit code 1: a fault."""

import json
import re
import sys
import time
from typing import Any

import grpc
from google.protobuf import json_format
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status import rpc_status

from scheduler.v1 import service_pb2, service_pb2_grpc

METHODS = service_pb2.DESCRIPTOR.services_by_name["SchedulerService"].methods_by_name
PATIENCE_S, DEADLINE_S = 5.0, 20.0
saved: dict[str, Any] = {}


def main(address: str, path: str) -> int:
    with open(path, encoding="utf-8") as file:
        steps = json.load(file)
    faults = 0
    with grpc.insecure_channel(address) as channel:
        stub = service_pb2_grpc.SchedulerServiceStub(channel)
        for step in steps:
            until_s = time.monotonic() + PATIENCE_S
            while (fault := attempt(stub, step)) and step.get("retry"):
                if time.monotonic() > until_s:
                    break
                time.sleep(0.1)
            faults += bool(fault)
            print(f"FAIL  {step['step']}: {fault}" if fault else f"ok    {step['step']}")
    return 1 if faults else 0


def attempt(stub: Any, step: dict[str, Any]) -> str:
    """What is wrong, "" for nothing."""
    name = step["call"]
    kind = getattr(service_pb2, METHODS[name].input_type.name)
    request = json_format.ParseDict(filled(step["request"]), kind())
    metadata = tuple(step.get("metadata", {}).items())
    call, trailer = getattr(stub, name), {}
    try:
        if "messages" in step:
            stream = call(request, metadata=metadata, timeout=DEADLINE_S)
            found: Any = [shown(next(stream)) for _ in step["messages"]]
            stream.cancel()
        else:
            answer, done = call.with_call(request, metadata=metadata, timeout=DEADLINE_S)
            found, trailer = shown(answer), dict(done.trailing_metadata())
    except grpc.RpcError as error:
        found = refusal(error)
        return differs(step["error"], found) if "error" in step else f"was refused: {found}"
    if "error" in step:
        return f"was not refused, but answered {found}"
    fault = differs(step.get("messages", step.get("answer")), found)
    fault = fault or differs(step.get("trailer", {}), trailer)
    for key, field in step.get("save", {}).items():
        saved[key] = found.get(field)
    return fault


def shown(message: Any) -> Any:
    return json_format.MessageToDict(message)


def refusal(error: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"code": error.code().name, "message": error.details()}
    status, info, bad = rpc_status.from_call(error), ErrorInfo(), BadRequest()
    for detail in status.details if status else ():
        if detail.Unpack(info):
            found["reason"] = info.reason
        elif detail.Unpack(bad):
            found["fields"] = [violation.field for violation in bad.field_violations]
    return found


def filled(value: Any) -> Any:
    """`value` with what earlier steps saved."""
    if isinstance(value, dict):
        return {key: filled(each) for key, each in value.items()}
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+)\}", lambda match: str(saved.get(match[1])), value)
    return value


def differs(wanted: Any, found: Any, path: str = "") -> str:
    """How `found` differs from what is wanted of it: objects may have more, "*" is anything."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return f"{path} is {found!r}"
        parts = (differs(each, found.get(key), f"{path}.{key}") for key, each in wanted.items())
        return next(filter(None, parts), "")
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            return f"{path} is {found!r}"
        pairs = enumerate(zip(wanted, found, strict=True))
        return next(filter(None, (differs(*pair, f"{path}[{at}]") for at, pair in pairs)), "")
    if wanted == "*":
        return "" if found not in (None, "") else f"{path} is missing"
    return "" if filled(wanted) == found else f"{path} is {found!r}, not {filled(wanted)!r}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))

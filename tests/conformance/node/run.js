// The conformance steps by @grpc/grpc-js: run.js ADDRESS STEPS FOLDERS, where .proto files and
// what they import are. One line a step; exit code 1 on a fault.
"use strict";
const fs = require("fs");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");
const protobuf = require("protobufjs");

const [address, stepsPath, ...includeDirs] = process.argv.slice(2);
const PATIENCE_MS = 5000, DEADLINE_MS = 20000;
const saved = {};

// What an error carries (google.rpc).
const rpc = protobuf.parse(`syntax = "proto3";
  message Any { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }
  message Violation { string field = 1; string description = 2; }
  message BadRequest { repeated Violation field_violations = 1; }`).root;

const definition = loader.loadSync("scheduler/v1/service.proto", {
  includeDirs, longs: String, enums: String, defaults: false, oneofs: false,
});
const Service = grpc.loadPackageDefinition(definition).scheduler.v1.SchedulerService;
const client = new Service(address, grpc.credentials.createInsecure());

// Between proto3 JSON, as steps have it, and what proto-loader takes and gives.
function fromJson(value, key) {
  if (Array.isArray(value)) return value.map((each) => fromJson(each));
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, fromJson(v, k)]));
  if (typeof value !== "string") return value;
  const text = filled(value);
  if (key === "updateMask") return { paths: text.split(",") };
  return /^\d+s$/.test(text) ? { seconds: text.slice(0, -1) } : text;
}

function toJson(value) {
  if (Array.isArray(value)) return value.map(toJson);
  if (!value || typeof value !== "object") return value;
  const keys = Object.keys(value);
  if ("seconds" in value && keys.every((key) => key === "seconds" || key === "nanos"))
    return `${value.seconds}${value.nanos ? "." + value.nanos : ""}s`;
  return Object.fromEntries(keys.map((key) => [key, toJson(value[key])]));
}

function filled(text) {
  return text.replace(/\$\{(\w+)\}/g, (_, name) => String(saved[name]));
}

function refusal(error) {
  const found = { code: grpc.status[error.code], message: error.details };
  const [binary] = error.metadata.get("grpc-status-details-bin");
  const details = binary ? rpc.lookupType("Status").decode(binary).details : [];
  for (const { typeUrl, value } of details) {
    if (typeUrl.endsWith("google.rpc.ErrorInfo"))
      found.reason = rpc.lookupType("ErrorInfo").decode(value).reason;
    if (typeUrl.endsWith("google.rpc.BadRequest"))
      found.fields = rpc.lookupType("BadRequest").decode(value).fieldViolations.map((v) => v.field);
  }
  return found;
}

// How `found` differs from what is wanted of it: objects may have more, "*" is anything.
function differs(wanted, found, path = "") {
  if (Array.isArray(wanted)) {
    if (!Array.isArray(found) || found.length !== wanted.length)
      return `${path} is ${JSON.stringify(found)}`;
    return wanted.map((each, at) => differs(each, found[at], `${path}[${at}]`)).find(Boolean) || "";
  }
  if (wanted && typeof wanted === "object") {
    if (!found || typeof found !== "object") return `${path} is ${JSON.stringify(found)}`;
    const parts = Object.entries(wanted).map(([key, each]) => differs(each, found[key], `${path}.${key}`));
    return parts.find(Boolean) || "";
  }
  if (wanted === "*") return found === undefined || found === "" ? `${path} is missing` : "";
  const value = typeof wanted === "string" ? filled(wanted) : wanted;
  return value === found ? "" : `${path} is ${JSON.stringify(found)}, not ${JSON.stringify(value)}`;
}

// {found, trailer} or {error}.
function called(step) {
  const metadata = new grpc.Metadata();
  for (const [key, value] of Object.entries(step.metadata || {})) metadata.set(key, value);
  const request = fromJson(step.request);
  const options = { deadline: Date.now() + DEADLINE_MS };
  return new Promise((resolve) => {
    if (step.messages) {
      const messages = [];
      const stream = client[step.call](request, metadata, options);
      stream.on("data", (message) => {
        messages.push(toJson(message));
        if (messages.length === step.messages.length) {
          resolve({ found: messages, trailer: {} });
          stream.cancel();
        }
      });
      stream.on("error", (error) => resolve({ error: refusal(error) }));
      stream.on("end", () => resolve({ found: messages, trailer: {} }));
      return;
    }
    let answer;
    const call = client[step.call](request, metadata, options, (error, message) => {
      if (error) resolve({ error: refusal(error) });
      else answer = message;
    });
    call.on("status", (status) => {
      if (status.code === grpc.status.OK)
        setImmediate(() => resolve({ found: toJson(answer), trailer: status.metadata.getMap() }));
    });
  });
}

async function attempt(step) {
  const { found, trailer, error } = await called(step);
  if (error) return step.error ? differs(step.error, error) : `was refused: ${JSON.stringify(error)}`;
  if (step.error) return `was not refused, but answered ${JSON.stringify(found)}`;
  const fault = differs(step.messages || step.answer, found) || differs(step.trailer || {}, trailer);
  for (const [key, field] of Object.entries(step.save || {})) saved[key] = found[field];
  return fault;
}

async function main() {
  let faults = 0;
  for (const step of JSON.parse(fs.readFileSync(stepsPath))) {
    const until = Date.now() + PATIENCE_MS;
    let fault = await attempt(step);
    while (fault && step.retry && Date.now() < until) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      fault = await attempt(step);
    }
    if (fault) faults += 1;
    console.log(fault ? `FAIL  ${step.step}: ${fault}` : `ok    ${step.step}`);
  }
  client.close();
  process.exitCode = faults ? 1 : 0;
}

main();

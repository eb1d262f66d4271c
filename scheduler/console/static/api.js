// Calls of the service by the Connect protocol, as JSON, with the token of this tab.

import { parsed } from "./format.js";

const SERVICE = "/scheduler.v1.SchedulerService/";
const KEY = "muster.token";
const END = 2; // flag of the last envelope of a stream

/** A call that ended in an error. `code`: as Connect has them, "network" where none came back. */
export class CallError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** The token of this tab, "" for none. It goes with the tab: nothing is kept in cookies. */
export function token() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function keepToken(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

/** Headers that every request has. */
export function bearer() {
  return token() ? { Authorization: `Bearer ${token()}` } : {};
}

/** How the request is written for a command line. */
export function asCurl(method, request) {
  const body = JSON.stringify(request ?? {}).replaceAll("'", String.raw`'\''`);
  const sent = token() ? ' -H "Authorization: Bearer $TOKEN"' : "";
  return `curl -s ${location.origin}${SERVICE}${method}${sent} -H 'Content-Type: application/json' -d '${body}'`;
}

/** fetch, of which a connection that fails is a CallError too. */
export async function request(path, options) {
  try {
    return await fetch(path, { cache: "no-store", credentials: "omit", redirect: "error", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new CallError("network", "The server does not answer.");
  }
}

/** The error that an answer has. */
export async function errorOf(answer) {
  const text = await answer.text();
  try {
    const { code, message } = parsed(text);
    return new CallError(code, message);
  } catch {
    return new CallError(`http_${answer.status}`, text.trim() || answer.statusText);
  }
}

/** The answer of one method. Throws CallError. */
export async function call(method, body = {}, signal = undefined) {
  const answer = await request(SERVICE + method, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...bearer() },
    body: JSON.stringify(body),
    signal,
  });
  if (!answer.ok) throw await errorOf(answer);
  return parsed(await answer.text());
}

/** The answers of one method that streams. Throws CallError. */
export async function* stream(method, body, signal) {
  const content = new TextEncoder().encode(JSON.stringify(body));
  const envelope = new Uint8Array(5 + content.length);
  new DataView(envelope.buffer).setUint32(1, content.length);
  envelope.set(content, 5);
  const answer = await request(SERVICE + method, {
    method: "POST",
    headers: { "Content-Type": "application/connect+json", ...bearer() },
    body: envelope,
    signal,
  });
  if (!answer.ok) throw await errorOf(answer);
  for await (const [head, message] of parts(answer.body, 5, (view) => view.getUint32(1))) {
    const value = parsed(new TextDecoder().decode(message));
    if (head[0] & END) {
      if (value.error) throw new CallError(value.error.code, value.error.message);
      return;
    }
    yield value;
  }
}

/**
 * Pieces of a body: a head of `headSize` bytes that says how long what follows is, and that.
 * Both are copies, which begin at the begin of their buffers.
 */
export async function* parts(body, headSize, lengthOf) {
  const reader = body.getReader();
  let pending = new Uint8Array(0);
  try {
    for (;;) {
      while (pending.length >= headSize) {
        const length = lengthOf(new DataView(pending.buffer, pending.byteOffset, headSize));
        if (pending.length < headSize + length) break;
        yield [pending.slice(0, headSize), pending.slice(headSize, headSize + length)];
        pending = pending.subarray(headSize + length);
      }
      const { done, value } = await reader.read();
      if (done) return;
      const joined = new Uint8Array(pending.length + value.length);
      joined.set(pending);
      joined.set(value, pending.length);
      pending = joined;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

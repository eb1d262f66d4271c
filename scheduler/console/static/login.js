// Who looks: a token that is typed in, or an ID token that an OpenID Connect issuer gives.
//
// The way there and back is the authorization code flow with PKCE (S256). What begins it (state, nonce,
// verifier) stays in the session storage of this tab and is used once; what comes back without it is refused.

import { html, useEffect, useState } from "./view.js";
import { CallError, errorOf, request } from "./api.js";
import { Problem } from "./ui.js";

const BEGUN = "muster.login";
const AGAIN_MS = 2_000;

/**
 * What GET /login says.
 * @typedef {{label?: string, issuer?: string, problem?: string, authorize?: string, clientId?: string, scope?: string}} Offer
 */

/** @returns {Promise<Offer>} */
async function offered() {
  const answer = await request("/login", {});
  return answer.ok ? answer.json() : {};
}

/** @param {Uint8Array} bytes */
function base64url(bytes) {
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function secret() {
  return base64url(crypto.getRandomValues(new Uint8Array(32)));
}

/**
 * Leave for the issuer; it sends us back to this page with a code. `isOther`: it is to ask who that is, even
 * where it knows somebody.
 * @param {Offer} offer
 * @param {boolean} isOther
 */
async function depart(offer, isOther) {
  if (!crypto.subtle) throw new CallError("insecure", "Signing in needs a connection by TLS: open this page by https.");
  const begun = { state: secret(), nonce: secret(), verifier: secret(), issuer: offer.issuer, place: location.hash };
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(begun.verifier));
  sessionStorage.setItem(BEGUN, JSON.stringify(begun));
  const address = new URL(offer.authorize);
  const asked = {
    response_type: "code",
    client_id: offer.clientId,
    redirect_uri: `${location.origin}/`,
    scope: offer.scope,
    state: begun.state,
    nonce: begun.nonce,
    code_challenge: base64url(new Uint8Array(digest)),
    code_challenge_method: "S256",
    ...(isOther && { prompt: "login" }),
  };
  for (const [key, value] of Object.entries(asked)) address.searchParams.set(key, value);
  location.assign(address);
}

/** Whether the address has what an issuer sends back. */
export function hasArrived() {
  const query = new URLSearchParams(location.search);
  return query.has("state") && (query.has("code") || query.has("error"));
}

/**
 * The ID token for what the issuer sent back, which then is no longer in the address, nor kept anywhere.
 * Throws CallError.
 */
export async function arrive() {
  const query = new URLSearchParams(location.search);
  const begun = JSON.parse(sessionStorage.getItem(BEGUN) ?? "{}");
  sessionStorage.removeItem(BEGUN);
  const isOurs = begun.state && query.get("state") === begun.state;
  history.replaceState(null, "", `/${isOurs ? begun.place : ""}`);
  if (!isOurs) throw new CallError("login", "This sign-in did not begin in this tab. Sign in again.");
  if ((query.get("iss") ?? begun.issuer) !== begun.issuer) throw new CallError("login", "Another issuer has answered. Sign in again.");
  if (query.has("error")) {
    const words = [query.get("error"), query.get("error_description")].filter(Boolean).join(": ");
    throw new CallError("login", `The issuer did not sign you in: ${words}`);
  }
  const answer = await request("/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ code: query.get("code"), verifier: begun.verifier, nonce: begun.nonce }),
  });
  if (!answer.ok) throw await errorOf(answer);
  return (await answer.json()).idToken;
}

export function Login({ problem, onToken }) {
  const [text, setText] = useState("");
  const [offer, setOffer] = useState(/** @type {Offer} */ ({}));
  const [wrong, setWrong] = useState(null);
  useEffect(() => {
    document.title = "muster: sign in";
    let timer = 0;
    const ask = async () => {
      const answer = await offered().catch(() => ({ problem: "" }));
      setOffer(answer);
      if (answer.problem !== undefined) timer = setTimeout(ask, AGAIN_MS);
    };
    ask();
    return () => clearTimeout(timer);
  }, []);
  const isOther = problem?.code === "permission_denied"; // who has no role would only come back as the same
  const leave = () => depart(offer, isOther).catch((error) => setWrong(error instanceof CallError ? error : new CallError("login", String(error))));
  return html`<main class="login">
    <h1>muster</h1>
    <p>This server asks who looks. Your token stays in this tab, and goes when you close it.</p>
    <${Problem} error=${wrong ?? problem} />
    ${offer.authorize && html`<p><button type="button" class="issuer" onClick=${leave}>Sign in with ${offer.label}</button></p>`}
    ${offer.problem && html`<p class="quiet">${offer.label} cannot sign you in just now: ${offer.problem}</p>`}
    <form onSubmit=${(event) => { event.preventDefault(); if (text.trim()) onToken(text.trim()); }}>
      <label for="token">Token</label>
      <input id="token" type="password" value=${text} onInput=${(event) => setText(event.target.value)} autocomplete="off" spellcheck=${false} required />
      <button>Sign in</button>
    </form>
  </main>`;
}

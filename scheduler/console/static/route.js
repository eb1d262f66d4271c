// What the address says: #/page/argument?key=value. All that a page shows follows from it, so it can be
// sent to somebody else, and "back" goes back.

import { useEffect, useState } from "./view.js";

/** The page of the address with its arguments, and what stands behind the question mark. */
export function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").map(decodeURIComponent), query: new URLSearchParams(query) };
}

/** The address of the same page with other values; "" takes one away. */
export function hrefWith(values) {
  const [path, query = ""] = location.hash.split("?");
  const now = new URLSearchParams(query);
  for (const [key, value] of Object.entries(values)) {
    if (value === "") now.delete(key);
    else now.set(key, value);
  }
  return `${path || "#/"}${now.size ? `?${now}` : ""}`;
}

/**
 * A value of the address and how to set it. `isPassing`: without a step for "back".
 * @returns {[string, (value: any) => void]}
 */
export function useParam(key, usual = "", isPassing = false) {
  const [, setTurn] = useState(0);
  useEffect(() => {
    const follow = () => setTurn((turn) => turn + 1);
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  const set = (value) => go({ [key]: value === usual ? "" : String(value) }, isPassing);
  return [place().query.get(key) ?? usual, set];
}

/** Change values of the address. */
export function go(values, isPassing = false) {
  const href = hrefWith(values);
  if (href === location.hash) return;
  if (!isPassing) {
    location.hash = href;
    return;
  }
  history.replaceState(null, "", href);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

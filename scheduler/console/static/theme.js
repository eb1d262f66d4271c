// Light or dark, as the system has it or as was chosen here.

const SYSTEM = matchMedia("(prefers-color-scheme: dark)");

export function isDark() {
  return document.documentElement.dataset.theme === "dark";
}

/** "", "light" or "dark": what was chosen, "" for the system's. */
export function chosenTheme() {
  return localStorage.getItem("muster.theme") ?? "";
}

export function chooseTheme(name) {
  if (name) localStorage.setItem("muster.theme", name);
  else localStorage.removeItem("muster.theme");
  apply();
}

/** `listener` is called whenever the colours are others, until `signal`. */
export function onTheme(listener, signal) {
  addEventListener("muster-theme", listener, { signal });
}

function apply() {
  document.documentElement.dataset.theme = chosenTheme() || (SYSTEM.matches ? "dark" : "light");
  dispatchEvent(new Event("muster-theme"));
}

SYSTEM.addEventListener("change", apply);
apply();

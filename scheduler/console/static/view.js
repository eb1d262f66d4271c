// The three vendored files as one: components are functions that give html`...`.

import { h, render } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export { render, useEffect, useRef, useState };

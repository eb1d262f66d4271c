// The charts of the console: lines over time, with an axis, what is pointed at, and a span that can be chosen.

import { clockText } from "./format.js";
import { html, useEffect, useRef, useState } from "./view.js";

const HEIGHT = 72;
const TICK_PX = 110;
const STEPS_S = [1, 5, 15, 60, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600, 86_400, 2 * 86_400, 7 * 86_400, 28 * 86_400];

/** Round moments between two, in seconds, at most so many. */
export function ticks(from, to, most) {
  const step = STEPS_S.find((each) => (to - from) / each <= most) ?? STEPS_S.at(-1);
  const made = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) made.push(at);
  return made;
}

/** The width of an element, followed. */
export function useWidth(node, usual = 600) {
  const [width, setWidth] = useState(usual);
  useEffect(() => {
    const resizing = new ResizeObserver(([entry]) => setWidth(Math.max(60, entry.contentRect.width)));
    resizing.observe(node.current);
    return () => resizing.disconnect();
  }, []);
  return width;
}

/**
 * One value over time. `points`: [seconds, number or null]; `from`, `to`: seconds; `most`: the top of the axis;
 * `textOf`: how a value is written; `isBars`: a bar for each point that is not 0; `onSpan(from, to)`: a span was drawn.
 */
export function Chart({ title, points, from, to, most, textOf, isBars = false, onSpan }) {
  const box = useRef(null);
  const width = useWidth(box);
  const [pointed, setPointed] = useState(-1);
  const [drawn, setDrawn] = useState(null);
  const x = (at) => ((at - from) / Math.max(to - from, 1e-3)) * width;
  const seen = points.filter(([at]) => at >= from && at <= to);
  const top = Math.max(most ?? 0, ...seen.map(([, value]) => value ?? 0)) || 1;
  const y = (value) => HEIGHT - 2 - (HEIGHT - 6) * (value / top);
  const secondsAt = (event) => from + ((event.clientX - box.current.getBoundingClientRect().left) / width) * (to - from);
  const move = (event) => {
    const at = secondsAt(event);
    const gaps = seen.map(([each]) => Math.abs(each - at));
    setPointed(gaps.indexOf(Math.min(...gaps)));
    if (drawn) setDrawn([drawn[0], at]);
  };
  const up = () => {
    if (drawn && Math.abs(x(drawn[1]) - x(drawn[0])) > 6) onSpan?.(Math.min(...drawn), Math.max(...drawn));
    setDrawn(null);
  };
  const last = seen.findLast(([, value]) => value !== null);
  const [shownAt, shownValue] = seen[pointed] ?? last ?? [to, null];
  const written = shownValue === null ? "none" : textOf(shownValue);
  const marks = ticks(from, to, Math.max(2, Math.floor(width / TICK_PX)));
  return html`<figure class="chart">
    <figcaption><span>${title}</span> <b>${written}</b> <span class="quiet small">${seen[pointed] ? clockText(shownAt, to - from) : "now"}</span></figcaption>
    <div ref=${box} class="plot" onPointerMove=${move} onPointerLeave=${() => { setPointed(-1); setDrawn(null); }}
      onPointerDown=${(event) => onSpan && setDrawn([secondsAt(event), secondsAt(event)])} onPointerUp=${up}>
      <svg width=${width} height=${HEIGHT + 16} role="img" aria-label=${`${title}: ${written}; at most ${textOf(top)}`}>
        ${marks.map((at) => html`<g key=${at}><line class="rule" x1=${x(at)} x2=${x(at)} y1="0" y2=${HEIGHT} /><text x=${x(at)} y=${HEIGHT + 12} text-anchor=${x(at) < 30 ? "start" : x(at) > width - 30 ? "end" : "middle"}>${clockText(at, to - from)}</text></g>`)}
        <line class="rule" x1="0" x2=${width} y1=${HEIGHT - 2} y2=${HEIGHT - 2} />
        <text class="top" x=${width - 2} y="10" text-anchor="end">${textOf(top)}</text>
        ${isBars
          ? seen.filter(([, value]) => value).map(([at, value]) => html`<rect key=${at} class="bar" x=${x(at) - 1.5} width="3" y=${y(value)} height=${HEIGHT - 2 - y(value)} />`)
          : html`<path class="area" d=${areaOf(seen, x, y)} /><path class="line" d=${lineOf(seen, x, y)} />`}
        ${seen[pointed] && html`<line class="pointed" x1=${x(shownAt)} x2=${x(shownAt)} y1="0" y2=${HEIGHT} />`}
        ${drawn && html`<rect class="drawn" x=${Math.min(...drawn.map(x))} width=${Math.abs(x(drawn[1]) - x(drawn[0]))} y="0" height=${HEIGHT} />`}
      </svg>
    </div>
  </figure>`;
}

/** A path in steps: what was true at the end of a span was true in it. A null parts it. */
export function lineOf(points, x, y) {
  let path = "";
  let before = null;
  for (const [at, value] of points) {
    if (value !== null) path += `${before === null ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    before = value;
  }
  return path;
}

function areaOf(points, x, y) {
  const shown = points.filter(([, value]) => value !== null);
  if (shown.length < 2) return "";
  const floor = y(0).toFixed(1);
  return `${lineOf(shown, x, y)}L${x(shown.at(-1)[0]).toFixed(1)} ${floor}L${x(shown[0][0]).toFixed(1)} ${floor}Z`;
}

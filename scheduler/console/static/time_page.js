// Time: the map at any time of a log, by a slider, by playing it, or from incident to incident.

import { lineOf, ticks, useWidth } from "./chart.js";
import { clockText, count, seconds, span, zone } from "./format.js";
import { MapView } from "./map_page.js";
import { Recording, upTo } from "./recording.js";
import { useParam } from "./route.js";
import { Facts, html, Problem, Table, useEffect, useRef, useState } from "./ui.js";

const SPANS = [["24", "the last day"], ["168", "the last week"], ["0", "all that the log keeps"]];
const SPEEDS = [["10", "in 10 s"], ["60", "in a minute"], ["300", "in 5 minutes"]];
const REAL = 1e9; // seconds: an earlier clock is that of a trace
const LISTED = 12;

/** `isAlone`: there is this log and nothing else. */
export function TimePage({ isAlone = false }) {
  const kept = useRef(null);
  kept.current ??= new Recording();
  const recording = kept.current;
  const [hours, setHours] = useParam("hours", isAlone ? "0" : "24");
  const [at] = useParam("at");
  const [error, setError] = useState(null);
  const [isThere, setIsThere] = useState(false);
  useEffect(() => {
    const ending = new AbortController();
    setIsThere(false);
    setError(null);
    recording.load(Number(hours), ending.signal).then(
      () => {
        if (at || !isAlone) recording.seek(at ? Number(at) : recording.head.end); // now, unless it is a replay
        setIsThere(true);
      },
      (problem) => ending.signal.aborted || setError(problem),
    );
    return () => ending.abort();
  }, [recording, hours]);
  const isEmpty = isThere && !recording.frames.length;
  return html`
    <h1 tabindex="-1">${isThere && recording.fabric ? `${recording.fabric.name} in time` : "Time"}</h1>
    ${!isAlone && html`<p><label for="span">Show</label> <select id="span" value=${hours} onChange=${(event) => setHours(event.target.value)}>
      ${SPANS.map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}</select></p>`}
    <${Problem} error=${error} />
    ${!isThere && !error && html`<p class="quiet">Reading the log.</p>`}
    ${isEmpty && html`<p class="quiet">The log has nothing of that time.</p>`}
    ${isThere && !isEmpty && html`<${Player} key=${hours} recording=${recording} />`}`;
}

function Player({ recording }) {
  const { head } = recording;
  const length = Math.max(head.end - head.begin, 1e-3);
  const [now, setNow] = useState(recording.now);
  const [, setAt] = useParam("at", "", true);
  const [isPlaying, setIsPlaying] = useState(false);
  const [lasts, setLasts] = useState("60");
  const go = (wanted) => {
    recording.seek(wanted);
    setNow(recording.now);
  };
  const stay = (wanted) => {
    go(wanted);
    setAt(recording.now.toFixed(3));
  };
  const leap = (isLater) => {
    setIsPlaying(false);
    const mark = recording.markBeside(recording.now, isLater);
    if (mark) stay(mark.at);
  };
  useEffect(() => {
    globalThis.musterTime = { recording, go }; // for tests and benchmarks
  }, []);
  useEffect(() => {
    if (!isPlaying) return undefined;
    let before = performance.now();
    let frame = requestAnimationFrame(function turn(at) {
      go(recording.now + (length * (at - before)) / 1000 / Number(lasts));
      before = at;
      if (recording.now >= head.end) setIsPlaying(false);
      else frame = requestAnimationFrame(turn);
    });
    return () => cancelAnimationFrame(frame);
  }, [isPlaying, lasts]);
  const toggle = () => {
    if (!isPlaying && recording.now >= head.end) go(head.begin);
    setIsPlaying(!isPlaying);
  };
  useEffect(() => {
    const press = (event) => {
      if (event.key !== " " || event.ctrlKey || event.altKey || event.metaKey) return;
      if (event.target.closest("button, select, summary, a, input:not([type=range])")) return;
      event.preventDefault();
      toggle();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });
  const sample = head.samples[Math.max(0, upTo(head.samples.map(([at]) => ({ at })), now))] ?? [0, 0, 0, 0];
  const past = head.marks.slice(0, upTo(head.marks, now) + 1);
  return html`
    <div class="time">
      <label for="time" class="unseen">Time</label>
      <input id="time" type="range" min=${head.begin} max=${head.end} step=${length / 1000} value=${now} aria-valuetext=${stamp(head, now)} onInput=${(event) => go(Number(event.target.value))} onChange=${(event) => stay(Number(event.target.value))} />
      <${Strip} head=${head} now=${now} onGo=${(at) => { setIsPlaying(false); stay(at); }} />
      <div class="toolbar">
        <output for="time" class="stamp">${stamp(head, now)}</output>
        <div class="buttons" role="group" aria-label="Play">
          <button type="button" onClick=${() => leap(false)}>Incident before</button>
          <button type="button" aria-pressed=${isPlaying} onClick=${toggle}>${isPlaying ? "Pause" : "Play"}</button>
          <button type="button" onClick=${() => leap(true)}>Next incident</button>
        </div>
        <label for="lasts">All of it</label>
        <select id="lasts" value=${lasts} onChange=${(event) => setLasts(event.target.value)}>
          ${SPEEDS.map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}</select>
      </div>
      <${Facts} facts=${[["Jobs that wait", count(sample[1])], ["Hosts held", count(sample[2])], ["Hosts out of service", count(sample[3])], ["Incidents so far", count(past.length + (head.droppedMarks ?? 0))]]} />
    </div>
    <${MapView} cluster=${recording} />
    <h2>Incidents until then</h2>
    <${Table} caption="The last incidents, newest first" rows=${past.slice(-LISTED).reverse()} keyOf=${(mark) => `${mark.at} ${mark.kind} ${mark.subject}`} empty="Nothing has gone wrong yet." columns=${[
      { title: "When", of: (mark) => html`<button type="button" class="link" onClick=${() => { setIsPlaying(false); stay(mark.at); }}>${stamp(head, mark.at)}</button>` },
      { title: "What", of: (mark) => mark.kind.replaceAll("_", " ") },
      { title: "Where", of: (mark) => mark.subject },
      { title: "Detail", isText: true, of: (mark) => mark.detail },
    ]} />`;
}

/** A date, or in the clock of a trace the day and the time since its begin. */
function stamp({ begin }, at) {
  if (begin >= REAL) return new Date(at * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "long", ...zone() });
  const rest = seconds(String(Math.max(0, at - begin)));
  const part = (size, of) => String(Math.floor(rest / size) % of).padStart(2, "0");
  return `day ${Math.floor(rest / 86_400) + 1}, ${part(3600, 24)}:${part(60, 60)}:${part(1, 60)}`;
}

const HEIGHT = 74;
const NEAR_PX = 26; // incidents nearer than this are one mark

/** Hosts held and jobs that wait along the slider, with an axis; incidents as marks, those side by side as one. */
function Strip({ head, now, onGo }) {
  const box = useRef(null);
  const width = useWidth(box);
  const lines = useRef({});
  const { samples, begin, end } = head;
  if (samples.length < 2) return html`<div ref=${box}></div>`;
  const x = (at) => (width * (at - begin)) / Math.max(end - begin, 1e-3);
  if (lines.current.width !== width) lines.current = { width, drawn: stripLines(head, x, (at) => labelOf(head, at), onGo, width) }; // what is the same is not compared again
  const [waiting, held] = [1, 2].map((column) => Math.max(...samples.map((each) => each[column])));
  return html`<div ref=${box} class="strip"><svg width=${width} height=${HEIGHT} role="img" aria-label=${`Hosts held, at most ${count(held)}, and jobs that wait, at most ${count(waiting)}, over ${span(end - begin)}. The numbers of the time that is shown stand below.`}>
    ${lines.current.drawn}
    <line class="now" x1=${x(now)} x2=${x(now)} y1="0" y2=${HEIGHT - 16} />
  </svg></div>
  <p class="quiet small strip-key"><span class="held">hosts held, at most ${count(held)}</span> <span class="waiting">jobs that wait, at most ${count(waiting)}</span> <span class="mark">incidents, by how many</span></p>`;
}

/** A moment on the axis: of a trace its day, or the time of it. */
function labelOf({ begin, end }, at) {
  if (begin >= REAL) return clockText(at, end - begin);
  return end - begin > 2 * 86_400 ? `day ${Math.floor((at - begin) / 86_400) + 1}` : stamp({ begin }, at).split(", ")[1];
}

function stripLines({ samples, marks, begin, end }, x, textOf, onGo, width) {
  const floor = HEIGHT - 18;
  const path = (column) => {
    const most = Math.max(1, ...samples.map((each) => each[column]));
    return lineOf(samples.map((each) => [each[0], each[column]]), x, (value) => floor - ((floor - 20) * value) / most);
  };
  const clusters = [];
  for (const mark of marks) {
    if (clusters.length && x(mark.at) - x(clusters.at(-1).at) < NEAR_PX) clusters.at(-1).size += 1;
    else clusters.push({ at: mark.at, size: 1 });
  }
  return html`<g>
    ${ticks(begin, end, Math.max(2, Math.floor(width / 110))).map((at) => html`<g key=${at}><line class="rule" x1=${x(at)} x2=${x(at)} y1="16" y2=${floor} /><text x=${x(at)} y=${HEIGHT - 4} text-anchor=${x(at) < 30 ? "start" : x(at) > width - 30 ? "end" : "middle"}>${textOf(at)}</text></g>`)}
    <path class="held" d=${path(2)} /><path class="waiting" d=${path(1)} />
    ${clusters.map(({ at, size }) => html`<g key=${at} class="mark" onClick=${() => onGo(at)}><line x1=${x(at)} x2=${x(at)} y1="12" y2=${floor} /><text x=${Math.min(Math.max(x(at), 6), width - 10)} y="10" text-anchor="middle">${count(size)}</text></g>`)}
  </g>`;
}

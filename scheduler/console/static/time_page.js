// Time: the map at any time of a log, by a slider, by playing it, or from incident to incident.

import { count, seconds, span } from "./format.js";
import { MapView } from "./map_page.js";
import { Recording, upTo } from "./recording.js";
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
  const [hours, setHours] = useState(isAlone ? "0" : "24");
  const [error, setError] = useState(null);
  const [isThere, setIsThere] = useState(false);
  useEffect(() => {
    const ending = new AbortController();
    setIsThere(false);
    setError(null);
    recording.load(Number(hours), ending.signal).then(
      () => setIsThere(true),
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
  const [isPlaying, setIsPlaying] = useState(false);
  const [lasts, setLasts] = useState("60");
  const go = (wanted) => {
    recording.seek(wanted);
    setNow(recording.now);
  };
  const leap = (isLater) => {
    setIsPlaying(false);
    const mark = recording.markBeside(recording.now, isLater);
    if (mark) go(mark.at);
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
      <input id="time" type="range" min=${head.begin} max=${head.end} step=${length / 1000} value=${now} aria-valuetext=${stamp(head, now)} onInput=${(event) => go(Number(event.target.value))} />
      <${Strip} head=${head} now=${now} />
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
      { title: "When", of: (mark) => html`<button type="button" class="link" onClick=${() => { setIsPlaying(false); go(mark.at); }}>${stamp(head, mark.at)}</button>` },
      { title: "What", of: (mark) => mark.kind.replaceAll("_", " ") },
      { title: "Where", of: (mark) => mark.subject },
      { title: "Detail", isText: true, of: (mark) => mark.detail },
    ]} />`;
}

/** A date, or in the clock of a trace the day and the time since its begin. */
function stamp({ begin }, at) {
  if (begin >= REAL) return new Date(at * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
  const rest = seconds(String(Math.max(0, at - begin)));
  const part = (size, of) => String(Math.floor(rest / size) % of).padStart(2, "0");
  return `day ${Math.floor(rest / 86_400) + 1}, ${part(3600, 24)}:${part(60, 60)}:${part(1, 60)}`;
}

/** Share of hosts that are held, and how many jobs wait, along the slider. */
function Strip({ head, now }) {
  const lines = useRef(null);
  const { samples, begin, end } = head;
  if (samples.length < 2) return null;
  const x = (at) => (1000 * (at - begin)) / Math.max(end - begin, 1e-3);
  lines.current ??= stripLines(head, x); // made once: what is the same is not compared again
  const [waiting, held] = [1, 2].map((column) => Math.max(...samples.map((each) => each[column])));
  return html`<svg class="strip" viewBox="0 0 1000 40" preserveAspectRatio="none" role="img" aria-label=${`Hosts held, at most ${count(held)}, and jobs that wait, at most ${count(waiting)}, over ${span(end - begin)}. The numbers of the time that is shown stand below.`}>
    ${lines.current}
    <line class="now" x1=${x(now)} x2=${x(now)} y1="0" y2="40" />
  </svg>
  <p class="quiet small strip-key"><span class="held">hosts held</span> <span class="waiting">jobs that wait</span>, each as a share of its most; marks above: incidents</p>`;
}

function stripLines({ samples, marks }, x) {
  const line = (column) => {
    const most = Math.max(1, ...samples.map((each) => each[column]));
    return samples.map((each, place) => `${place ? "L" : "M"}${x(each[0]).toFixed(1)} ${(38 - (36 * each[column]) / most).toFixed(1)}`).join("");
  };
  const ticks = [...new Set(marks.map((mark) => x(mark.at).toFixed(1)))].map((at) => `M${at} 0V3`).join("");
  return html`<g><path class="held" d=${line(2)} /><path class="waiting" d=${line(1)} /><path class="mark" d=${ticks} /></g>`;
}

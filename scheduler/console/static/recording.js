// A log as the map saw it (scheduler/console/timeline.py): the cluster at any time of it.

import { bearer, errorOf, request } from "./api.js";
import { parsed } from "./format.js";
import { Cluster } from "./live.js";

export class Recording extends Cluster {
  constructor() {
    super();
    /** Seconds, whether it is a whole picture, and the bytes, of each frame. */
    this.frames = [];
    this.at = -1; // the frame that is shown
    this.now = 0; // seconds
    this.head = { begin: 0, end: 0, marks: [], samples: [] };
  }

  /** `hours`: so far back, 0 for all. Throws CallError. */
  async load(hours, signal) {
    const answer = await request(`/timeline${hours ? `?hours=${hours}` : ""}`, { headers: bearer(), signal });
    if (!answer.ok) throw await errorOf(answer);
    this.open(await answer.arrayBuffer());
  }

  open(buffer) {
    const view = new DataView(buffer);
    const length = view.getUint32(0, true);
    this.head = parsed(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    this.frames = [];
    for (let place = 4 + length; place < buffer.byteLength;) {
      const size = view.getUint32(place, true);
      const begin = place + 16;
      this.frames.push({ at: view.getFloat64(place + 4, true), isWhole: view.getUint32(place + 12, true) === 1, begin, size });
      place = begin + size;
    }
    this.buffer = buffer;
    this.at = -1;
    if (this.frames.length) this.seek(this.head.begin);
  }

  /** Show the cluster as it was at that time. */
  seek(seconds) {
    this.now = Math.min(Math.max(seconds, this.head.begin), this.head.end);
    const wanted = Math.max(0, upTo(this.frames, this.now));
    let next = this.at + 1;
    let key = wanted;
    while (!this.frames[key].isWhole) key -= 1;
    if (wanted < this.at || key > this.at) next = key;
    if (next <= wanted) {
      this.isQuiet = true;
      for (; next <= wanted; next += 1) {
        const { begin, size } = this.frames[next];
        this.take(this.buffer.slice(begin, begin + size));
      }
      this.isQuiet = false;
      this.at = wanted;
    }
    this.tell({ hosts: null, jobs: true });
  }

  tell(change) {
    if (!this.isQuiet) super.tell(change);
  }

  /** The incident after that time, or before it; undefined: there is none. */
  markBeside(seconds, isLater) {
    const { marks } = this.head;
    return isLater ? marks.find(({ at }) => at > seconds + 1e-3) : marks.findLast(({ at }) => at < seconds - 1e-3);
  }
}

/** The place of the last of these that is not later; -1: all are. */
export function upTo(entries, seconds) {
  let [low, high] = [0, entries.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (entries[middle].at <= seconds) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

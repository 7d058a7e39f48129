// Long text without markup, as blocks of some lines each: what is added at its end costs the layout of one block, not of all.

import { bySlices } from "./slices.js";

const LINES = 48;
const CHARS = 6000; // a line may be longer than a block should be

export class Pieces {
  constructor(place) {
    this.place = place;
    this.lines = 0;
    this.text = null;
  }

  add(text) {
    for (let from = 0; from < text.length; ) {
      if (!this.text || this.lines >= LINES || this.text.length >= CHARS) this.begin();
      const to = this.fits(text, from);
      this.text.appendData(text.slice(from, to));
      from = to;
    }
  }

  /** Where what this block still takes of `text` ends. */
  fits(text, from) {
    const most = Math.min(text.length, from + CHARS - this.text.length);
    let to = from;
    while (this.lines < LINES) {
      const at = text.indexOf("\n", to);
      if (at < 0 || at >= most) return most;
      to = at + 1;
      this.lines++;
    }
    return to;
  }

  begin() {
    const block = document.createElement("span");
    block.className = "piece";
    this.text = block.appendChild(document.createTextNode(""));
    this.lines = 0;
    this.place.append(block);
  }
}

/** Text that grows, shown as it is. */
export class Plain {
  constructor(place) {
    this.place = place;
    this.reset();
  }

  reset() {
    this.place.replaceChildren();
    this.pieces = new Pieces(this.place);
    this.text = this.shown = "";
  }

  set(text) {
    if (!text.startsWith(this.shown)) this.reset();
    this.text = text;
    if (this.queued) return;
    this.queued = true;
    bySlices(() => this.step());
  }

  step() {
    const from = this.shown.length;
    const more = this.text.slice(from, from + CHARS);
    this.pieces.add(more);
    this.shown = this.text.slice(0, from + more.length);
    this.queued = more.length > 0;
    return more.length;
  }
}

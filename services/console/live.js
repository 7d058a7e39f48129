// What the scheduler does now: a row a sequence over the steps, and the figures beside it. The service works for this view
// only while it is open.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { events, key } from "./api.js";

const STEPS = 120; // columns shown
const ROW = 14, GAP = 3, LEFT = 78, RIGHT = 8;
const AXIS = 18, BARS = 44; // heights at the bottom: the times, and above them how long steps took
const WINDOW_MS = 1000; // rates are over about a second: a tick has too few steps for one
const TICK_PX = 90; // between two times at the least

/** Rates over a second of events that tell those of a quarter of one. */
class Rate {
  constructor() {
    this.seen = [];
  }

  /** Takes a rate that held since the last event. Gives the mean of the last second. */
  take(rate, now) {
    const last = this.seen.at(-1);
    this.seen.push({ at: now, ms: last ? now - last.at : 0, rate });
    while (this.seen.length > 1 && now - this.seen[0].at > WINDOW_MS) this.seen.shift();
    const ms = this.seen.reduce((sum, event) => sum + event.ms, 0);
    const tokens = this.seen.reduce((sum, event) => sum + event.rate * event.ms, 0);
    // Zero has no sign here.
    return Math.max(0, ms ? tokens / ms : rate) || 0;
  }
}

/** Steps as the service tells them, and which line each sequence has: a line is free again when its sequence has left the picture. */
class Picture {
  constructor() {
    this.steps = [];
    this.lines = new Map();
  }

  take(steps, now) {
    // An event tells the steps since the last one; those of a replica ended one after the other, the last of them now. Events may
    // come in bursts.
    const before = this.steps.at(-1)?.at || 0;
    const ends = new Map();
    const timed = steps.toReversed().map((step) => {
      const at = ends.get(step.replica) ?? now;
      ends.set(step.replica, at - step.ms);
      // Replicas number their sequences by themselves.
      const rows = step.replica ? step.rows.map((row) => ({ ...row, seq: `${step.replica}:${row.seq}` })) : step.rows;
      return { ...step, rows, at: Math.max(at, before) };
    });
    this.steps.push(...timed.reverse());
    this.steps.splice(0, Math.max(0, this.steps.length - STEPS));
    const seen = new Set(this.steps.flatMap((s) => s.rows.map((r) => r.seq)));
    for (const seq of this.lines.keys()) if (!seen.has(seq)) this.lines.delete(seq);
    for (const seq of seen) {
      if (this.lines.has(seq)) continue;
      const taken = new Set(this.lines.values());
      let line = 0;
      while (taken.has(line)) line++;
      this.lines.set(seq, line);
    }
  }

  draw(canvas) {
    const style = getComputedStyle(document.documentElement);
    const scale = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    canvas.width = width * scale;
    canvas.height = height * scale;
    const g = canvas.getContext("2d");
    g.scale(scale, scale);
    g.font = "11px system-ui, sans-serif";
    const view = { g, width, height, ink: (name) => style.getPropertyValue(name).trim(), column: (width - LEFT - RIGHT) / STEPS };
    this.rows(view);
    this.bars(view);
    this.axis(view);
  }

  x(i, { column }) {
    return LEFT + (STEPS - this.steps.length + i) * column;
  }

  rows(view) {
    const { g, height, ink, column } = view;
    const most = Math.floor((height - AXIS - BARS - 8) / (ROW + GAP));
    const y = (line) => line * (ROW + GAP) + 4;
    g.fillStyle = ink("--soft");
    const shown = [...this.lines].filter(([, line]) => line < most);
    for (const [seq, line] of shown) g.fillText(`seq ${seq}`, 6, y(line) + ROW - 3);
    if (this.lines.size > shown.length) g.fillText(`and ${this.lines.size - shown.length} more`, 6, y(most) + 6);
    this.steps.forEach((step, i) => {
      for (const row of step.rows) {
        const line = this.lines.get(row.seq);
        if (line >= most) continue;
        g.fillStyle = row.cached ? "#2f9e5b" : row.prompt ? "#d98200" : "#5b6ee0";
        const tall = row.prompt ? ROW : ROW * 0.6;
        g.fillRect(this.x(i, view), y(line) + (ROW - tall) / 2, Math.max(1, column - 1), tall);
      }
    });
  }

  bars(view) {
    const { g, height, ink, column } = view;
    const [foot, tall] = [height - AXIS, BARS - 10];
    const tallest = Math.max(1, ...this.steps.map((s) => s.ms));
    this.steps.forEach((step, i) => {
      const wide = Math.max(1, column - 1);
      g.fillStyle = ink("--line");
      g.fillRect(this.x(i, view), foot - (tall * step.ms) / tallest, wide, (tall * step.ms) / tallest);
      g.fillStyle = ink("--bad");
      g.fillRect(this.x(i, view), foot - (tall * Math.min(step.predicted_ms, tallest)) / tallest, wide, 1);
    });
    // The scale stands beside the bars.
    g.fillStyle = ink("--soft");
    g.fillText(`${tallest.toFixed(1)} ms`, 6, foot - tall + 8);
    g.fillText("0 ms", 6, foot);
  }

  /** Times below the bars: how long ago a step ended. */
  axis(view) {
    const { g, width, height, ink } = view;
    const now = performance.now();
    g.fillStyle = ink("--line");
    g.fillRect(LEFT, height - AXIS, width - LEFT - RIGHT, 1);
    g.fillStyle = ink("--soft");
    g.textAlign = "center";
    let last = -TICK_PX;
    this.steps.forEach((step, i) => {
      const x = this.x(i, view);
      if (x - last < TICK_PX || x > width - RIGHT - TICK_PX / 2) return;
      last = x;
      g.fillText(`${((now - step.at) / 1000).toFixed(1)} s ago`, Math.max(x, LEFT + 20), height - 4);
    });
  }
}

const whole = (n) => Math.round(n).toLocaleString("en");
const share = (part, of) => (of ? `${part.toLocaleString("en")} of ${of.toLocaleString("en")}` : "-");

/** What the service says of now, as names and words. */
function facts(now) {
  const stepped = now.step_ms > 0;
  return [
    ["Tokens a second", whole(now.tokens)],
    ["Prompt tokens a second", whole(now.prompt)],
    ["Sequences running", now.running],
    ["Requests waiting", now.waiting],
    ["KV pages", share(now.pages_used, now.pages)],
    ["State slots", share(now.slots_used, now.slots)],
    ...(now.entries_max ? [["Prompts kept", share(now.entries, now.entries_max) + (now.host_entries ? `, ${now.host_entries.toLocaleString("en")} on the host` : "")]] : []),
    ...(now.replicas || []).map((one, number) => [
      `Replica ${number}`,
      one.slots ? `${whole(one.running)} running, ${whole(one.waiting)} waiting, ${share(one.slots_used, one.slots)} slots` : "lost",
    ]),
    ["A step takes, predicted", stepped ? `${now.step_ms.toFixed(2)} ms, ${now.predicted_ms.toFixed(2)} ms` : "-"],
  ];
}

/** Why the service does not show its steps. Where this tab has a key, another one may be let in. */
export function Refused({ words, onKey }) {
  return html`<p class="trouble" role="alert">${words}</p>${key.get() && html`<button type="button" onClick=${onKey}>Use another key</button>`}`;
}

export function Live({ onClosed, onKey }) {
  const canvas = useRef(null);
  const [now, setNow] = useState(null);
  const [said, setSaid] = useState("");
  const [refused, setRefused] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    const picture = new Picture();
    const [tokens, prompt] = [new Rate(), new Rate()];
    const draw = () => canvas.current && picture.draw(canvas.current);
    const follow = async () => {
      while (!stop.signal.aborted) {
        try {
          for await (const event of events("/v1/console/steps", { signal: stop.signal })) {
            setSaid("");
            const now = performance.now();
            picture.take(event.steps, now);
            const rates = { tokens: tokens.take(event.now.tokens_per_second, now), prompt: prompt.take(event.now.prompt_tokens_per_second, now) };
            // Between requests the last step is still known.
            setNow((before) => ({ ...event.now, ...rates, ...(event.steps.length || !before ? {} : { step_ms: before.step_ms, predicted_ms: before.predicted_ms }) }));
            requestAnimationFrame(draw);
          }
        } catch (error) {
          if (error.name === "AbortError") return;
          if (error.status === 401 || error.status === 0) onClosed(error);
          if (error.status >= 400 && error.status < 500) return setRefused(error.message);
          setSaid(error.message);
        }
        await new Promise((resolve) => setTimeout(resolve, 2000));
      }
    };
    follow();
    addEventListener("resize", draw);
    return () => {
      stop.abort();
      removeEventListener("resize", draw);
    };
  }, []);
  if (refused) return html`<div class="live"><h1>Live</h1><${Refused} words=${refused} onKey=${onKey} /></div>`;
  return html`<div class="live"><h1>Live</h1>
    <div class="legend"><span><i class="prompt"></i>a piece of a prompt</span><span><i class="cached"></i>the first piece behind what the prefix cache had</span><span><i class="decode"></i>a token</span><span>at the bottom: how long each step took, as a bar, and how long it was predicted to take, as a line</span></div>
    <canvas ref=${canvas} role="img" aria-label="Sequences as rows over the last steps; the figures below say the same in numbers"></canvas>
    ${said && html`<p class="trouble" role="status">${said}</p>`}
    ${now ? html`<dl>${facts(now).map(([k, v]) => html`<div><dt>${k}</dt><dd>${String(v)}</dd></div>`)}</dl>` : html`<p class="empty">Waiting for a step. Ask something in another tab.</p>`}</div>`;
}

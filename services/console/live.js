// What the scheduler does now: a row a sequence over the steps, and the figures beside it. The service works for this view
// only while it is open.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { events } from "./api.js";

const STEPS = 120; // columns shown
const ROW = 14, GAP = 3, LEFT = 78;

/** Steps as the service tells them, and which line each sequence has: a line is free again when its sequence has left the picture. */
class Picture {
  constructor() {
    this.steps = [];
    this.lines = new Map();
  }

  take(steps) {
    this.steps.push(...steps);
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
    const ink = (name) => style.getPropertyValue(name).trim();
    const scale = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    canvas.width = width * scale;
    canvas.height = height * scale;
    const g = canvas.getContext("2d");
    g.scale(scale, scale);
    g.font = "11px system-ui, sans-serif";
    g.fillStyle = ink("--soft");
    const column = (width - LEFT) / STEPS;
    for (const [seq, line] of this.lines) {
      const y = line * (ROW + GAP) + 4;
      if (y < height - 40) g.fillText(`seq ${seq}`, 6, y + ROW - 3);
    }
    const tallest = Math.max(1, ...this.steps.map((s) => s.ms));
    this.steps.forEach((step, i) => {
      const x = LEFT + (STEPS - this.steps.length + i) * column;
      for (const row of step.rows) {
        const y = this.lines.get(row.seq) * (ROW + GAP) + 4;
        if (y >= height - 40) continue;
        g.fillStyle = row.cached ? "#2f9e5b" : row.prompt ? "#d98200" : "#5b6ee0";
        const tall = row.prompt ? ROW : ROW * 0.6;
        g.fillRect(x, y + (ROW - tall) / 2, Math.max(1, column - 1), tall);
      }
      g.fillStyle = ink("--line");
      const tall = (30 * step.ms) / tallest;
      g.fillRect(x, height - tall, Math.max(1, column - 1), tall);
      g.fillStyle = ink("--bad");
      g.fillRect(x, height - (30 * Math.min(step.predicted_ms, tallest)) / tallest, Math.max(1, column - 1), 1);
    });
    g.fillStyle = ink("--soft");
    g.fillText(`a step, ≤ ${tallest.toFixed(1)} ms`, 6, height - 8);
  }
}

export function Live({ onClosed }) {
  const canvas = useRef(null);
  const [now, setNow] = useState(null);
  const [said, setSaid] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    const picture = new Picture();
    const draw = () => canvas.current && picture.draw(canvas.current);
    const follow = async () => {
      while (!stop.signal.aborted) {
        try {
          for await (const event of events("/v1/console/steps", { signal: stop.signal })) {
            setSaid("");
            picture.take(event.steps);
            setNow(event.now);
            requestAnimationFrame(draw);
          }
        } catch (error) {
          if (error.name === "AbortError") return;
          setSaid(error.message);
          if (error.status === 401 || error.status === 0) onClosed(error);
          if (error.status >= 400 && error.status < 500) return;
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
  const share = (part, of) => (of ? `${part.toLocaleString("en")} of ${of.toLocaleString("en")}` : "-");
  const facts = now && [
    ["Tokens a second", Math.round(now.tokens_per_second).toLocaleString("en")],
    ["Prompt tokens a second", Math.round(now.prompt_tokens_per_second).toLocaleString("en")],
    ["Sequences running", now.running],
    ["Requests waiting", now.waiting],
    ["KV pages", share(now.pages_used, now.pages)],
    ["State slots", share(now.slots_used, now.slots)],
    ...(now.entries_max ? [["Prompts kept", share(now.entries, now.entries_max) + (now.host_entries ? `, ${now.host_entries.toLocaleString("en")} on the host` : "")]] : []),
    ["A step takes, predicted", `${now.step_ms.toFixed(2)} ms, ${now.predicted_ms.toFixed(2)} ms`],
  ];
  return html`<div class="live"><h1>Live</h1>
    <div class="legend"><span><i class="prompt"></i>a piece of a prompt</span><span><i class="cached"></i>the first piece behind what the prefix cache had</span><span><i class="decode"></i>a token</span><span>below: how long each step took, and the line that was predicted</span></div>
    <canvas ref=${canvas} role="img" aria-label="Sequences as rows over the last steps; the figures below say the same in numbers"></canvas>
    ${said && html`<p class="trouble" role="status">${said}</p>`}
    ${facts ? html`<dl>${facts.map(([k, v]) => html`<div><dt>${k}</dt><dd>${String(v)}</dd></div>`)}</dl>` : html`<p class="empty">Waiting for a step. Ask something in another tab.</p>`}</div>`;
}

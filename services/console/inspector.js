// Token by token: how sure the model was, what it might have said instead, and what else stood behind it.

import { Component, html, useEffect, useRef, useState } from "./vendor/preact-htm.js";

const CHUNK = 200; // tokens drawn in one frame

/** Bits of surprise at a token. */
const surprise = (t) => -t.logprob / Math.LN2;

/** Bits of entropy: the engine's, or of what is known of the distribution, the reported tokens and what they leave as one more: at most the true value. */
export function entropy(t) {
  if (t.report?.entropy !== undefined) return t.report.entropy / Math.LN2;
  const shares = t.top.map(([, logprob]) => Math.exp(logprob));
  const rest = Math.max(0, 1 - shares.reduce((a, b) => a + b, 0));
  return [...shares, rest].reduce((sum, p) => (p > 0 ? sum - p * Math.log2(p) : sum), 0);
}

const scale = (bits, most) => Math.min(5, Math.round((bits / most) * 5));

function engramLevel({ report }) {
  if (report?.engram?.changed) return 4;
  return report?.engram && from(report.engram) ? 1 : 0;
}

function draftLevel({ report }) {
  if (!report?.draft) return 0;
  return report.draft.accepted ? 2 : 5;
}

function ruleLevel({ report }) {
  if (report?.allowed === 1) return 4;
  return report?.allowed ? 1 : 0;
}

/** By what the text is coloured: the words, 0 (nothing) to 5 for a token, and what levels mean. */
const COLOURS = {
  surprise: ["How surprising each token was", (t) => scale(surprise(t), 8), [[0, "expected"], [3, "unlikely"], [5, "a surprise"]]],
  entropy: ["How unsure the model was", (t) => scale(entropy(t), 3), [[0, "sure"], [3, "unsure"], [5, "very unsure"]]],
  engram: ["What Engram changed", engramLevel, [[4, "Engram made it this token"], [1, "Engram wanted it too"]]],
  drafts: ["What was drafted", draftLevel, [[2, "a guess that was right"], [5, "came in place of a wrong guess"]]],
  rules: ["What rules left", ruleLevel, [[4, "no choice was left"], [1, "some tokens were not allowed"]]],
};

const read = (kept) => (typeof kept === "string" ? JSON.parse(kept) : kept);

const shown = (text) => text.replace(/\n/g, "⏎").replace(/\t/g, "⇥") || "∅";

/** A token with its spaces, which tell it from its twin without. */
const spelled = (text) => shown(text).replace(/ /g, "␣");

/** Where Engram has a token from, in words. */
function from(engram) {
  if (engram.document !== undefined) return `“${engram.title ?? engram.document}”, token ${engram.at_token}`;
  return engram.context_tokens !== undefined ? `a table, after ${engram.context_tokens} tokens that it knows` : "";
}

/** What a report says, as names and words. */
function facts(report) {
  const { top_prob, engram, rules, allowed, draft, thought_left } = report;
  const found = [["Likeliest token", `${(100 * top_prob).toFixed(2)} %`]];
  if (engram) found.push(["Engram", [engram.changed ? "made it this token" : engram.changed === null ? "may have changed it" : "changed nothing", from(engram)].filter(Boolean).join(": ")]);
  if (rules) found.push(["Rules", `${rules.join(", ").replace(/_/g, " ")}${allowed === 1 ? ": this token was forced" : allowed ? `: ${allowed.toLocaleString("en")} tokens were left` : ""}`]);
  if (draft) found.push(["Draft", draft.accepted ? `guessed by ${draft.source}, and right` : `in place of a wrong guess by ${draft.source}`]);
  if (thought_left !== undefined) found.push(["Thought", `${thought_left.toLocaleString("en")} tokens of its budget left`]);
  return found;
}

/** Some tokens; drawn again only if they look otherwise. */
class Chunk extends Component {
  shouldComponentUpdate(next) {
    return ["by", "at", "focus"].some((name) => next[name] !== this.props[name]);
  }

  render({ tokens, first, by, at, focus, onChoose }) {
    const level = COLOURS[by][1];
    return html`<div class="chunk">${tokens.map((kept, i) => {
      const t = read(kept);
      const broken = t.text.includes("\n");
      return html`<button type="button" class=${`token heat-${level(t)}`} tabindex=${i === focus ? 0 : -1} aria-pressed=${i === at} aria-label=${t.text.trim() ? undefined : spelled(t.text)}
        onClick=${() => onChoose(first + i)}>${broken ? shown(t.text) : t.text}</button>${broken ? html`<br />` : ""}`;
    })}</div>`;
  }
}

/** The text, as buttons. A long one is drawn, and coloured otherwise, a chunk a frame. */
function Tokens({ tokens, by, at, onChoose }) {
  const chunks = Math.ceil(tokens.length / CHUNK);
  const [, draw] = useState(0);
  const progress = useRef({ by, before: by, count: 0, drawn: 0 });
  const p = progress.current;
  if (p.by !== by) Object.assign(p, { by, before: p.by, count: 0 });
  p.count = Math.min(p.count + 1, chunks);
  p.drawn = Math.max(p.drawn, p.count);
  useEffect(() => {
    if (p.count >= chunks) return;
    const frame = requestAnimationFrame(() => draw((n) => n + 1));
    return () => cancelAnimationFrame(frame);
  });
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(tokens.length - 1, (at ?? -1) + step));
    onChoose(next);
    event.currentTarget.querySelectorAll("button")[next]?.focus();
  };
  const within = (place, c) => (place !== null && Math.floor(place / CHUNK) === c ? place % CHUNK : null);
  return html`<div class="tokens" onKeyDown=${move} role="group" aria-label="Tokens; left and right arrows move">${Array.from({ length: p.drawn }, (_, c) =>
    html`<${Chunk} key=${c} tokens=${tokens.slice(c * CHUNK, (c + 1) * CHUNK)} first=${c * CHUNK} by=${c < p.count ? by : p.before} at=${within(at, c)} focus=${within(at ?? 0, c)} onChoose=${onChoose} />`)}</div>`;
}

function Chosen({ token }) {
  const { text, top, report } = token;
  return html`<table class="alternatives"><caption>${`“${spelled(text)}”: ${surprise(token).toFixed(2)} bits of surprise, ${report ? "" : "about "}${entropy(token).toFixed(2)} bits unsure`}</caption>
      <thead><tr><th scope="col">Token</th><th scope="col">Probability</th></tr></thead>
      <tbody>${top.map(([other, logprob]) => html`<tr class=${other === text ? "taken" : ""}><td><code>${spelled(other)}</code></td>
        <td><meter min="0" max="1" value=${Math.exp(logprob)}></meter> ${(100 * Math.exp(logprob)).toFixed(2)} %</td></tr>`)}</tbody></table>
    ${report && html`<dl class="behind">${facts(report).map(([name, words]) => html`<div><dt>${name}</dt><dd>${words}</dd></div>`)}</dl>`}
    ${report?.experts && html`<details class="experts"><summary>Experts of ${report.experts.length} layers</summary><ol>${report.experts.map((layer) => html`<li>${layer.join(", ")}</li>`)}</ol></details>`}`;
}

export function Inspector({ tokens }) {
  const [by, setBy] = useState("surprise");
  const [at, setAt] = useState(null);
  return html`<div class="inspector">
    <label>Colour by <select value=${by} onChange=${(e) => setBy(e.target.value)}>
      ${Object.entries(COLOURS).map(([value, [name]]) => html`<option value=${value} selected=${by === value}>${name}</option>`)}</select></label>
    <div class="legend">${COLOURS[by][2].map(([level, words]) => html`<span><i class=${`heat-${level}`}></i>${words}</span>`)}</div>
    <${Tokens} tokens=${tokens} by=${by} at=${at} onChoose=${setAt} />
    ${at !== null && html`<${Chosen} token=${read(tokens[at])} />`}
  </div>`;
}

// Token by token: how sure the model was, and what it might have said instead.

import { html, useState } from "./vendor/preact-htm.js";

/** Bits of surprise at a token. */
const surprise = (t) => -t.logprob / Math.LN2;

/** Entropy of what is known of the distribution: the reported tokens, and what they leave as one more. Bits, at most the true value. */
export function entropy(t) {
  const shares = t.top.map(([, logprob]) => Math.exp(logprob));
  const rest = Math.max(0, 1 - shares.reduce((a, b) => a + b, 0));
  return [...shares, rest].reduce((sum, p) => (p > 0 ? sum - p * Math.log2(p) : sum), 0);
}

const COLOURS = { surprise: ["How surprising each token was", surprise, 8], entropy: ["How unsure the model was", entropy, 3] };

/** 0 (sure) to 5. */
const level = (t, by) => Math.min(5, Math.round((COLOURS[by][1](t) / COLOURS[by][2]) * 5));

/** A token of the API in a small form; the log-probability of a token that cannot be is a very small number. */
export const compact = (t) => ({ text: t.token, logprob: t.logprob, top: t.top_logprobs.map((a) => [a.token, a.logprob]) });

const shown = (text) => text.replace(/\n/g, "⏎").replace(/\t/g, "⇥") || "∅";

export function Inspector({ tokens }) {
  const [by, setBy] = useState("surprise");
  const [at, setAt] = useState(null);
  const chosen = tokens[at];
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(tokens.length - 1, (at ?? -1) + step));
    setAt(next);
    event.currentTarget.querySelectorAll("button")[next]?.focus();
  };
  return html`<div class="inspector">
    <label>Colour by <select value=${by} onChange=${(e) => setBy(e.target.value)}>
      ${Object.entries(COLOURS).map(([value, [name]]) => html`<option value=${value} selected=${by === value}>${name}</option>`)}</select></label>
    <div class="tokens" onKeyDown=${move} role="group" aria-label="Tokens; left and right arrows move">${tokens.map((t, i) =>
      html`<button type="button" class=${`token heat-${level(t, by)}`} tabindex=${i === (at ?? 0) ? 0 : -1} aria-pressed=${i === at}
        onClick=${() => setAt(i)}>${t.text.includes("\n") ? shown(t.text) : t.text}</button>${t.text.includes("\n") ? html`<br />` : ""}`)}</div>
    ${chosen && html`<table class="alternatives"><caption>${`“${shown(chosen.text)}”: ${surprise(chosen).toFixed(2)} bits of surprise, about ${entropy(chosen).toFixed(2)} bits unsure`}</caption>
      <thead><tr><th scope="col">Token</th><th scope="col">Probability</th></tr></thead>
      <tbody>${chosen.top.map(([text, logprob]) => html`<tr class=${text === chosen.text ? "taken" : ""}><td><code>${shown(text)}</code></td>
        <td><meter min="0" max="1" value=${Math.exp(logprob)}></meter> ${(100 * Math.exp(logprob)).toFixed(2)} %</td></tr>`)}</tbody></table>`}
  </div>`;
}

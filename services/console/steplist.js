// The steps of an answer as they are read.

import { html } from "./vendor/preact-htm.js";
import { plain } from "./annotations.js";
import { KINDS, RUNNING } from "./steps.js";
import { bytes } from "./system.js";

const title = ({ server, name }) => plain(server ? `${server}: ${name}` : name);

/** What runs now, in words, or an empty text. */
export function running(steps) {
  const step = steps?.findLast((of) => of.status === RUNNING);
  return step ? { call: `${title(step)} runs`, page: "Reading a page" }[step.kind] || "Searching" : "";
}

const amount = (n, digits = 0) => n.toLocaleString("en", { maximumFractionDigits: digits });

/** What came of a step, in words. */
function facts(step, grows) {
  const { kind, status, outcome, ms, bytes: size, tokens, passages } = step;
  const state = status === RUNNING ? (grows ? "running…" : "not finished") : status === "failed" ? "failed" : outcome || (kind === "call" && "done");
  return [state, ms >= 0 && `${amount(ms, ms < 10 ? 1 : 0)} ms`, size >= 0 && bytes(size), tokens > 0 && `${amount(tokens)} ${tokens === 1 ? "token" : "tokens"}`,
    passages >= 0 && `${amount(passages)} ${passages === 1 ? "passage" : "passages"}`].filter(Boolean);
}

/** A step in a line of Markdown or of the page. */
export const inWords = (step) => `${KINDS[step.kind]} ${title(step)} (${facts(step, false).join(", ")})`;

function Step({ step, grows }) {
  const bad = step.status === "failed" || ["failed", "expired"].includes(step.outcome);
  const mark = step.status === RUNNING && grows ? "…" : bad ? "✗" : step.status === RUNNING ? "–" : "✓";
  return html`<li class=${bad ? "failed" : ""}><span aria-hidden="true">${mark}</span> <strong>${KINDS[step.kind]}</strong> <bdi>${title(step)}</bdi>${" "}
    <span class="facts">${facts(step, grows).map((fact) => html`<span>${fact}</span> `)}</span>
    ${(step.input || step.output) && html`<details><summary>${step.kind === "call" ? "Arguments and result" : "Found"}</summary>
      ${step.input && html`<pre tabindex="0">${step.input}</pre>`}${step.output && html`<pre tabindex="0">${step.output}</pre>`}</details>`}</li>`;
}

/** The steps of an answer, the first one first, and the budget that its pipeline ran out of. */
export function Steps({ turn, grows }) {
  const outOf = turn.timings?.turn?.pipeline?.out_of;
  return html`<ol class="steps" aria-label="Steps of this answer">${turn.steps.map((step) => html`<${Step} step=${step} grows=${grows} />`)}</ol>
    ${typeof outOf === "string" && html`<p class="sources">The pipeline's budget of ${outOf} is used up.</p>`}`;
}

// What was learned: what the last run made of each family of questions, the answers that differ most, and which version is served.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { call } from "./api.js";
import { Refused } from "./live.js";
import { Unset } from "./unset.js";

const VERSIONS = "/v1/learning/versions", LOOK_MS = 2000;

const percent = (share) => `${(100 * share).toFixed(1)} %`;
const points = (share) => `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(1)}`;
const when = (seconds) => new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
const words = (name) => name.replace(/_/g, " ");

const OUTCOMES = { nothing: "there was nothing new to learn", passed: "it passed", needs_more: "the gate has too few questions", people: "people have to choose first",
  refused: "the gate refused it", failed: "it failed" };
const LEFT_OUT = { unchecked: "without a name or a number to check", unconfirmed: "said by too few people", contradicted: "contradicted by others", over_share: "over one account's share" };

function Families({ of }) {
  return html`<table tabindex="0"><caption>What changed, by family of questions</caption>
    <thead><tr>${["Family", "Questions", "Before", "After", "Interval, points", "Verdict"].map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${of.map((family) => html`<tr key=${family.name}><th scope="row">${family.name}</th><td>${family.counts.questions.toLocaleString("en")}</td><td>${percent(family.before)}</td>
      <td>${percent(family.after)}</td><td>${points(family.lower)} to ${points(family.upper)}</td><td>${words(family.outcome)}</td></tr>`)}</tbody></table>`;
}

/** `why` is what keeps it from being served, in the gate's words. */
function Verdict({ of, why }) {
  const { divergence, canaries } = of;
  return html`<${Families} of=${of.families} />
    <p class="facts"><span>divergence ${divergence.mean.toFixed(4)} nats, at most ${divergence.largest.toFixed(3)}, on ${divergence.probes} probes</span>
      <span>${canaries.fired} of ${canaries.asked} canary prompts fired</span> <span>speed ${of.speed.toFixed(2)}</span></p>
    ${why.length > 0 && html`<ul>${why.map((reason) => html`<li>${reason}</li>`)}</ul>`}`;
}

const verdict = (is) => (is ? "right" : "wrong");

/** Both answers side by side. */
function Changed({ list }) {
  return html`<table tabindex="0"><caption>The answers that differ most: ${list.length}</caption>
    <thead><tr>${["Family", "Question", "Before", "After"].map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${list.map((of) => html`<tr><th scope="row">${of.family}</th><td dir="auto">${of.question}</td>
      <td dir="auto">${of.before} <small>(${verdict(of.was_right)})</small></td><td dir="auto">${of.after} <small>(${verdict(of.is_right)})</small></td></tr>`)}</tbody></table>`;
}

function LastRun({ of, why }) {
  if (!of) return html`<p class="empty">Nothing was learned since the service started.</p>`;
  const left = Object.entries(LEFT_OUT).filter(([why]) => of.left_out[why]).map(([why, said]) => `${of.left_out[why].toLocaleString("en")} ${said}`);
  return html`<p>${when(of.at)}, ${of.seconds.toLocaleString("en")} s${of.dry ? ", dry" : ""}: <strong>${OUTCOMES[of.outcome] || words(of.outcome)}</strong>.
      ${" "}${of.facts.toLocaleString("en")} facts, ${of.new_facts.toLocaleString("en")} of them new.${left.length > 0 && html` Left out: ${left.join(", ")}.`}</p>
    ${of.error && html`<p class="trouble" role="alert">${of.error}</p>`}
    ${of.contradictions.length > 0 && html`<details><summary>Subjects that a person has to decide: ${of.contradictions.length.toLocaleString("en")}</summary>
      <ul>${of.contradictions.map((ids) => html`<li><code>${ids.join(", ")}</code></li>`)}</ul></details>`}
    ${of.verdict && html`<${Verdict} of=${of.verdict} why=${why} />`}
    ${of.changed.length > 0 && html`<${Changed} list=${of.changed} />`}`;
}

/** A version, with the one thing that can be done about it. */
function Version({ of, act, busy }) {
  const said = of.verdict ? words(of.verdict.outcome) : "not judged";
  return html`<li><strong>Version ${of.number}</strong> <span class="facts"><span>${words(of.stage)}</span><span>${said}</span><span>${when(of.at)}</span>
      <span>${of.bytes.toLocaleString("en")} bytes</span>${of.stale && html`<span>made from what was taken back</span>`}</span>
    ${of.why && html`<p class="reason">${of.why}</p>`}
    ${of.verdict && html`<details><summary>What the gate measured</summary><${Verdict} of=${of.verdict} why=${[]} /></details>`}
    <div class="row">${of.stage === "shadow" && html`<button type="button" class="first" disabled=${busy} onClick=${() => act("promote", { version: of.number }, `Version ${of.number} answers everybody now.`)}>Accept version ${of.number}</button>`}
      ${of.stage === "current" && html`<button type="button" disabled=${busy} onClick=${() => confirm(`Take version ${of.number} back? Everybody is answered as before it.`)
        && act("rollback", {}, `Version ${of.number} was taken back.`)}>Take version ${of.number} back</button>`}</div></li>`;
}

/** What the service knows, asked for again while a run is on its way; `act` does something about it. */
function useVersions(onClosed) {
  const [known, setKnown] = useState(null);
  const [failure, setFailure] = useState(null);
  const [said, setSaid] = useState("");
  const [busy, setBusy] = useState(false);
  const look = () => call(VERSIONS).then((found) => (setKnown(found), setFailure(null)), (error) => {
    if ([0, 401].includes(error.status)) onClosed(error);
    setFailure(error);
  });
  useEffect(() => void look(), []);
  const waits = known?.running || failure?.status === 0;
  useEffect(() => {
    const timer = waits && setTimeout(look, LOOK_MS);
    return () => clearTimeout(timer);
  }, [known, failure]);
  const act = async (path, body, done) => {
    setBusy(true);
    try {
      await call(`/v1/learning/${path}`, { body });
      setSaid(done);
    } catch (error) {
      setSaid(error.message);
    }
    await look();
    setBusy(false);
  };
  return { known, failure, said, act, busy };
}

export function LearnView({ onClosed, onKey }) {
  const { known, failure, said, act, busy } = useVersions(onClosed);
  const page = (content) => html`<div class="page"><h1>Learning</h1>${content}</div>`;
  if (failure?.status === 403) return page(html`<${Refused} words=${failure.message} onKey=${onKey} />`);
  if (failure?.code === "learning_off") return page(html`<${Unset} what="answers to learn from" section="learning" />`);
  if (failure) return page(html`<p class="trouble" role="alert">${failure.message}</p>`);
  if (!known) return page(html`<p class="empty">…</p>`);
  const running = busy || known.running;
  return page(html`<div class="row"><button type="button" disabled=${running} onClick=${() => act("run", {}, "")}>Learn now</button>
      <p role="status" class="said">${known.running ? "A run is on its way: the questions are asked behind everybody else's." : said}</p></div>
    <h2>Last run</h2><${LastRun} of=${known.last_run} why=${known.why} />
    ${known.data.map((lineage) => html`<section key=${lineage.id}><h2>Versions of ${lineage.id}</h2>
      <ul class="cards">${[...lineage.versions].reverse().map((version) => html`<${Version} key=${version.number} of=${version} act=${act} busy=${running} />`)}</ul></section>`)}`);
}

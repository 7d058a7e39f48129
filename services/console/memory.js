// What the service was taught: Engram's tables and collections, with the rights of the API.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { call, key, refusal } from "./api.js";
import { bytes } from "./system.js";
import { Unset } from "./unset.js";

const TABLES = "/v1/engram/tables", COLLECTIONS = "/v1/engram/collections";

const nameOf = (entry) => entry.id || entry.name;

/** A list that is asked for again after each change; what was refused is said. */
function useList(path) {
  const [list, setList] = useState(null);
  const [said, setSaid] = useState("");
  const look = () => call(path).then((found) => (setList(found.data || []), found.data || []), (error) => (setSaid(error.message), []));
  useEffect(() => void look(), []);
  /** Does something and looks again: until the entry `wanted` is there, if one is. Gives whether it was done. */
  const act = async (words, request, wanted) => {
    setSaid("");
    let done = true;
    try {
      setSaid(words(await call(...request)));
    } catch (error) {
      setSaid(error.message);
      done = false;
    }
    for (let i = 0; i < LATE_TIMES; i++) {
      const found = await look();
      if (!done || !wanted || found.some((entry) => nameOf(entry) === wanted)) break;
      await new Promise((resolve) => setTimeout(resolve, LATE_MS));
    }
    return done;
  };
  return { list, said, act };
}

// Learned texts are read by the service on its own time; so long a list without them is asked for again.
const LATE_MS = 500, LATE_TIMES = 24;

/** Whether the service has a directory to keep tables and collections in. */
async function hasDirectory() {
  return (await call(TABLES)).writable !== false;
}

/** Why this tab may not write, if it may not: tables are for those who may follow the steps, collections belong to a key. */
async function refusals() {
  const refused = await refusal("/v1/console/steps");
  return { tables: refused, collections: key.get() ? "" : refused };
}

/** Said before anybody types what would be refused. */
const Refused = ({ words }) => html`<p role="status">Nothing can be written from here: ${words}.</p>`;

const lines = (text) => text.split(/\n\s*\n|\n/).map((l) => l.trim()).filter(Boolean);

const TIMES = ["created", "updated", "expires", "at"]; // seconds since 1970

function amount(name, value) {
  if (TIMES.includes(name)) return new Date(value * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  return name.includes("bytes") ? bytes(value) : value.toLocaleString("en");
}

function Facts({ of }) {
  return html`<span class="facts">${Object.entries(of).filter(([, v]) => typeof v === "number").map(([k, v]) =>
    html`<span>${k === "bytes" ? "size" : k.replace(/_/g, " ")}: ${amount(k, v)}</span> `)}</span>`;
}

/** How a collection's own test went: what its searches find, and whether they found more before. */
function SelfTest({ of }) {
  const test = of.self_test, waits = of.self_test_due ? " Another test follows when the service is idle." : "";
  if (!test) return waits && html`<p class="facts">Not tested yet: searches go by words.${waits}</p>`;
  if (test.recall_percent === null) return html`<p class="facts">Its texts are too short to test searches with, so they go by words.${waits}</p>`;
  const by = test.vector_weight ? `words and ${amount("weight", 100 * test.vector_weight)} % meaning` : "words alone";
  return html`<p class="facts">Self-test of ${amount("at", test.at)}: ${test.recall_percent} % of ${amount("sentences", test.sentences)} sentences
    find their text, by ${by}.${waits}</p>
    ${test.fell_points && html`<p role="alert">That is ${test.fell_points} points less than in the test before.</p>`}`;
}

const counted = (n) => `${n.toLocaleString("en")} ${n === 1 ? "text" : "texts"}`;

function Tables({ refused }) {
  const { list, said, act } = useList(TABLES);
  const [name, setName] = useState("");
  const [texts, setTexts] = useState("");
  const teach = (event) => {
    event.preventDefault();
    act((a) => (a?.accepted === false ? "Not learned: below the quality that is asked for." : `Learned ${counted(lines(texts).length)}.`),
      [`${TABLES}/${encodeURIComponent(name)}/learn`, { body: { texts: lines(texts), quality: 1 } }], name);
  };
  return html`<section><h2>Tables of n-grams</h2>
    ${list === null ? html`<p class="empty">…</p>` : list.length ? html`<ul class="cards">${list.map((t) => html`<li key=${nameOf(t)}><strong>${nameOf(t)}</strong> <${Facts} of=${t} />
      ${!refused && html`<div class="row"><button type="button" onClick=${() => setName(nameOf(t))}>Choose</button>
        <button type="button" onClick=${() => act(() => "Took back the last write.", [`${TABLES}/${encodeURIComponent(nameOf(t))}/rollback`, { method: "POST" }])}>Take back the last write</button>
        <button type="button" onClick=${() => confirm(`Delete the table ${nameOf(t)}?`) && act(() => "Deleted.", [`${TABLES}/${encodeURIComponent(nameOf(t))}`, { method: "DELETE" }])}>Delete</button></div>`}</li>`)}</ul>`
      : html`<p class="empty">There are none yet that you may use.</p>`}
    ${refused ? html`<${Refused} words=${refused} />` : html`<form onSubmit=${teach}><label>Name of the table<input required value=${name} onInput=${(e) => setName(e.target.value)} /></label>
      <label>Texts, one a line<textarea required rows="4" value=${texts} onInput=${(e) => setTexts(e.target.value)}></textarea></label>
      <button type="submit" class="first">Teach</button></form>`}
    <p role="status" class="said">${said}</p></section>`;
}

function Collections({ refused }) {
  const { list, said, act } = useList(COLLECTIONS);
  const [name, setName] = useState("");
  const [texts, setTexts] = useState("");
  const [query, setQuery] = useState("");
  const [found, setFound] = useState([]);
  const path = () => `${COLLECTIONS}/${encodeURIComponent(name)}`;
  const add = async (event) => {
    event.preventDefault();
    const made = await act(() => "The collection is there.", [path(), { method: "PUT" }]);
    if (made && lines(texts).length) act(() => `Added ${counted(lines(texts).length)}.`, [`${path()}/add`, { body: { items: lines(texts).map((text) => ({ text })) } }], name);
  };
  const search = (event) => {
    event.preventDefault();
    act((answer) => {
      setFound(answer.data || answer.results || answer.items || []);
      return "";
    }, [`${path()}/search`, { body: { query, k: 5 } }]);
  };
  return html`<section><h2>Collections</h2>
    ${list === null ? html`<p class="empty">…</p>` : list.length ? html`<ul class="cards">${list.map((c) => html`<li key=${nameOf(c)}><strong>${nameOf(c)}</strong> <${Facts} of=${c} /><${SelfTest} of=${c} />
      <div class="row"><button type="button" onClick=${() => setName(nameOf(c))}>Choose</button>
        <button type="button" onClick=${() => confirm(`Delete the collection ${nameOf(c)}?`) && act(() => "Deleted.", [`${COLLECTIONS}/${encodeURIComponent(nameOf(c))}`, { method: "DELETE" }])}>Delete</button></div></li>`)}</ul>`
      : html`<p class="empty">There are none yet that are yours.</p>`}
    ${refused ? html`<${Refused} words=${refused} />` : html`<form onSubmit=${add}><label>Name of the collection<input required value=${name} onInput=${(e) => setName(e.target.value)} /></label>
      <label>Texts, one a line<textarea rows="4" value=${texts} onInput=${(e) => setTexts(e.target.value)}></textarea></label>
      <button type="submit" class="first">Add</button></form>`}
    ${!refused && html`<form onSubmit=${search}><label>Search it for<input required value=${query} onInput=${(e) => setQuery(e.target.value)} /></label><button type="submit" disabled=${!name}>Search</button></form>`}
    ${found.length > 0 && html`<ol>${found.map((f) => html`<li>${f.text} <small>${f.score?.toFixed(3)}</small></li>`)}</ol>`}
    <p role="status" class="said">${said}</p></section>`;
}

export function Memory({ onClosed }) {
  const [kept, setKept] = useState(null);
  const [refused, setRefused] = useState({});
  const [said, setSaid] = useState("");
  const look = () => Promise.all([hasDirectory(), refusals()]).then(([kept, refused]) => (setRefused(refused), setKept(kept)), (error) => {
    if ([0, 401].includes(error.status)) onClosed(error);
    else setSaid(error.message);
    // A service that went away may come back.
    if (error.status === 0) setTimeout(look, LATE_MS);
  });
  useEffect(() => void look(), []);
  if (said) return html`<div class="page"><h1>Memory</h1><p class="trouble" role="alert">${said}</p></div>`;
  if (kept === null) return html`<div class="page"><h1>Memory</h1><p class="empty">…</p></div>`;
  if (kept) return html`<div class="page"><h1>Memory</h1><${Tables} refused=${refused.tables} /><${Collections} refused=${refused.collections} /></div>`;
  return html`<div class="page"><h1>Memory</h1>
    <${Unset} what="tables or collections" section="engram" />
    <p>An answer can use documents that come with its request all the same.</p></div>`;
}

// What the service was taught: Engram's tables and collections, with the rights of the API.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { call } from "./api.js";
import { bytes } from "./system.js";

const TABLES = "/v1/engram/tables", COLLECTIONS = "/v1/engram/collections";

/** A list that is asked for again after each change; what was refused is said. */
function useList(path) {
  const [list, setList] = useState(null);
  const [said, setSaid] = useState("");
  const look = () => call(path).then((found) => setList(found.data || []), (error) => setSaid(error.message));
  useEffect(() => void look(), []);
  const act = async (words, ...request) => {
    setSaid("");
    try {
      const answer = await call(...request);
      setSaid(words(answer));
    } catch (error) {
      setSaid(error.message);
    }
    look();
  };
  return { list, said, act };
}

const lines = (text) => text.split(/\n\s*\n|\n/).map((l) => l.trim()).filter(Boolean);

function Facts({ of }) {
  return html`<span class="facts">${Object.entries(of).filter(([, v]) => typeof v === "number").map(([k, v]) =>
    html`<span>${k.replace(/_/g, " ")}: ${k.includes("bytes") ? bytes(v) : v.toLocaleString("en")}</span> `)}</span>`;
}

function Tables() {
  const { list, said, act } = useList(TABLES);
  const [name, setName] = useState("");
  const [texts, setTexts] = useState("");
  const teach = (event) => {
    event.preventDefault();
    act((a) => (a?.accepted === false ? "Not learned: below the quality that is asked for." : `Learned ${lines(texts).length} texts.`),
      `${TABLES}/${encodeURIComponent(name)}/learn`, { body: { texts: lines(texts), quality: 1 } });
  };
  return html`<section><h2>Tables of n-grams</h2>
    ${list === null ? html`<p class="empty">…</p>` : list.length ? html`<ul class="cards">${list.map((t) => html`<li key=${t.id || t.name}><strong>${t.id || t.name}</strong> <${Facts} of=${t} />
      <div class="row"><button type="button" onClick=${() => setName(t.id || t.name)}>Teach</button>
        <button type="button" onClick=${() => act(() => "Took back the last write.", `${TABLES}/${encodeURIComponent(t.id || t.name)}/rollback`, { method: "POST" })}>Take back the last write</button>
        <button type="button" onClick=${() => confirm(`Delete the table ${t.id || t.name}?`) && act(() => "Deleted.", `${TABLES}/${encodeURIComponent(t.id || t.name)}`, { method: "DELETE" })}>Delete</button></div></li>`)}</ul>`
      : html`<p class="empty">There are none yet that you may use.</p>`}
    <form onSubmit=${teach}><label>Table<input required value=${name} onInput=${(e) => setName(e.target.value)} /></label>
      <label>Texts, one a line<textarea required rows="4" value=${texts} onInput=${(e) => setTexts(e.target.value)}></textarea></label>
      <button type="submit" class="first">Teach</button></form>
    <p role="status" class="said">${said}</p></section>`;
}

function Collections() {
  const { list, said, act } = useList(COLLECTIONS);
  const [name, setName] = useState("");
  const [texts, setTexts] = useState("");
  const [query, setQuery] = useState("");
  const [found, setFound] = useState([]);
  const path = () => `${COLLECTIONS}/${encodeURIComponent(name)}`;
  const add = async (event) => {
    event.preventDefault();
    await act(() => "The collection is there.", path(), { method: "PUT" });
    await act(() => `Added ${lines(texts).length} texts.`, `${path()}/add`, { body: { items: lines(texts).map((text) => ({ text })) } });
  };
  const search = (event) => {
    event.preventDefault();
    act((answer) => {
      setFound(answer.data || answer.results || answer.items || []);
      return "";
    }, `${path()}/search`, { body: { query, k: 5 } });
  };
  return html`<section><h2>Collections</h2>
    ${list === null ? html`<p class="empty">…</p>` : list.length ? html`<ul class="cards">${list.map((c) => html`<li key=${c.id || c.name}><strong>${c.id || c.name}</strong> <${Facts} of=${c} />
      <div class="row"><button type="button" onClick=${() => setName(c.id || c.name)}>Choose</button>
        <button type="button" onClick=${() => confirm(`Delete the collection ${c.id || c.name}?`) && act(() => "Deleted.", `${COLLECTIONS}/${encodeURIComponent(c.id || c.name)}`, { method: "DELETE" })}>Delete</button></div></li>`)}</ul>`
      : html`<p class="empty">There are none yet that are yours.</p>`}
    <form onSubmit=${add}><label>Collection<input required value=${name} onInput=${(e) => setName(e.target.value)} /></label>
      <label>Texts, one a line<textarea rows="4" value=${texts} onInput=${(e) => setTexts(e.target.value)}></textarea></label>
      <button type="submit" class="first">Add</button></form>
    <form onSubmit=${search}><label>Search it for<input required value=${query} onInput=${(e) => setQuery(e.target.value)} /></label><button type="submit" disabled=${!name}>Search</button></form>
    ${found.length > 0 && html`<ol>${found.map((f) => html`<li>${f.text} <small>${f.score?.toFixed(3)}</small></li>`)}</ol>`}
    <p role="status" class="said">${said}</p></section>`;
}

export function Memory() {
  return html`<div class="page"><h1>Memory</h1><${Tables} /><${Collections} /></div>`;
}

// Vector stores, and a response that the service searches for: its passages, its events and its citation.
import OpenAI, { toFile } from "openai";
import { assert, model, url } from "./asked.mjs";

// A letter of two bytes stands before the fact, and a character of two units of UTF-16 before the letter.
const FILES = {
  "lockers.md": "🔑 Jürgen owns a dog. The access code of the Kelmar locker is 4821. A quiet child found an old coin last summer.",
  "rooms.md": "Zoë works as a baker. Room 417 is reserved for Diego Martin. The old miller walked across the stone bridge.",
};
const QUESTION = "What is the access code of the Kelmar locker?";
const client = new OpenAI({ baseURL: url, apiKey: "none", maxRetries: 0 });

const store = await client.vectorStores.create({ name: "desk" });
const files = await Promise.all(Object.entries(FILES).map(([name, text]) => toFile(Buffer.from(text), name)));
const batch = await client.vectorStores.fileBatches.uploadAndPoll(store.id, { files });
assert.equal(batch.file_counts.completed, 2);
const found = await client.vectorStores.search(store.id, { query: QUESTION, max_num_results: 1 });
assert.equal(found.data[0].filename, "lockers.md");
assert.match(found.data[0].content[0].text, /4821/);

const settings = {
  model, temperature: 0, tools: [{ type: "file_search", vector_store_ids: [store.id], max_num_results: 2 }],
  include: ["file_search_call.results"],
};
const stream = client.responses.stream({ ...settings, input: QUESTION });
const events = [];
for await (const event of stream) events.push(event);
const searches = events.map((event) => event.type).filter((type) => type.startsWith("response.file_search_call."));
assert.deepEqual(searches, ["in_progress", "searching", "completed"].map((state) => `response.file_search_call.${state}`));
const streamed = (await stream.finalResponse()).output;
const whole = (await client.responses.create({ ...settings, input: QUESTION })).output;
for (const output of [streamed, whole]) {
  const { text, annotations } = output.at(-1).content[0];
  assert.equal(output[0].results[0].filename, "lockers.md");
  assert.match(text, /4821/);
  assert.equal(annotations.length, 1);
  const [note] = annotations;
  assert.equal(note.filename, "lockers.md");
  assert.match(text.slice(note.start_index, note.end_index), /^\[\d\]$/);
  assert.equal(Buffer.from(FILES[note.filename]).subarray(note.source_start, note.source_end).toString(), note.quote);
}
const added = events.filter((event) => event.type === "response.output_text.annotation.added").map((event) => event.annotation);
assert.deepEqual(added, streamed.at(-1).content[0].annotations);

await client.vectorStores.delete(store.id);
await assert.rejects(client.vectorStores.retrieve(store.id), { status: 404, code: "vector_store_not_found" });

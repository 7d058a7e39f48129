// A stream, a typed answer, a runner of tools, and a response that goes on from another one.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { CITY, DESCRIPTION, PLACE_QUESTION, Place, QUESTION, RESULT, assert, model, url } from "./asked.mjs";

const client = new OpenAI({ baseURL: url, apiKey: "none", maxRetries: 0 });
const user = (content) => [{ role: "user", content }];

let text = "";
const stream = await client.chat.completions.create({ model, messages: user("What is 17 + 25?"), temperature: 0, stream: true });
for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
assert.match(text, /42/);

const parsed = await client.chat.completions.parse({
  model, messages: user(PLACE_QUESTION), temperature: 0, response_format: zodResponseFormat(Place, "place"),
});
Place.parse(parsed.choices[0].message.parsed);

const cities = [];
const weather = {
  type: "function",
  function: {
    name: "get_weather", description: DESCRIPTION, parameters: CITY, parse: JSON.parse,
    function: ({ city }) => { cities.push(city); return RESULT; },
  },
};
const runner = client.chat.completions.runTools({ model, messages: user(QUESTION), tools: [weather], temperature: 0 });
assert.match(await runner.finalContent(), /21/);
assert.deepEqual(cities, ["Paris"]);

const first = await client.responses.create({ model, input: "What is 17 + 25?", temperature: 0 });
assert.match(first.output_text, /42/);
const next = await client.responses.create({ model, input: "And 3 + 4?", previous_response_id: first.id, temperature: 0 });
assert.match(next.output_text, /7/);

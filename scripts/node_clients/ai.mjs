// A typed object, and a text that a tool is called for: on chat completions, and by the provider that speaks responses
// and names what the service keeps by its ids.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, tool } from "ai";
import { DESCRIPTION, PLACE_QUESTION, Place, QUESTION, RESULT, assert, model, url, z } from "./asked.mjs";

const chimere = createOpenAICompatible({ name: "chimere", baseURL: url, apiKey: "none", supportsStructuredOutputs: true });
const responses = createOpenAI({ baseURL: url, apiKey: "none" });

for (const provider of [chimere, responses]) {
  const settings = { model: provider(model), temperature: 0, maxRetries: 0 };
  const { object } = await generateObject({ ...settings, schema: Place, prompt: PLACE_QUESTION });
  Place.parse(object);

  const cities = [];
  const get_weather = tool({
    description: DESCRIPTION, inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => { cities.push(city); return RESULT; },
  });
  const { text } = await generateText({ ...settings, tools: { get_weather }, prompt: QUESTION, stopWhen: stepCountIs(3) });
  assert.match(text, /21/);
  assert.deepEqual(cities, ["Paris"]);
}

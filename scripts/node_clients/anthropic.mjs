// A stream, and two turns with a tool.
import Anthropic from "@anthropic-ai/sdk";
import { CITY, DESCRIPTION, QUESTION, RESULT, assert, model, url } from "./asked.mjs";

const client = new Anthropic({ baseURL: url.replace(/\/v1$/, ""), apiKey: "none", maxRetries: 0 });
const user = (content) => ({ role: "user", content });
const settings = { model, max_tokens: 1024, temperature: 0 };

let text = "";
const stream = client.messages.stream({ ...settings, messages: [user("What is 17 + 25?")] });
stream.on("text", (piece) => { text += piece; });
const message = await stream.finalMessage();
assert.match(text, /42/);
assert.equal(message.stop_reason, "end_turn");

const tools = [{ name: "get_weather", description: DESCRIPTION, input_schema: CITY }];
const called = await client.messages.create({ ...settings, tools, messages: [user(QUESTION)] });
const use = called.content.find((block) => block.type === "tool_use");
assert.deepEqual([use.name, use.input], ["get_weather", { city: "Paris" }]);
const result = user([{ type: "tool_result", tool_use_id: use.id, content: RESULT }]);
const answer = await client.messages.create({
  ...settings, tools, messages: [user(QUESTION), { role: "assistant", content: called.content }, result],
});
assert.match(answer.content.find((block) => block.type === "text").text, /21/);

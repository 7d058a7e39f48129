// What every client here is asked, and how it is told where the service is: `URL` and `MODEL` in the environment.
import assert from "node:assert/strict";
import { z } from "zod";

export { assert, z };
export const { URL: url, MODEL: model } = process.env;
export const QUESTION = "What is the weather in Paris?";
// By the names that the shipped model was taught: what is tried is the client.
export const RESULT = JSON.stringify({ temperature: 21, sky: "sunny" });
export const PLACE_QUESTION = 'Which city does it name? "Anna moved to Paris in 2019."';
export const Place = z.strictObject({ city: z.enum(["Paris", "London", "Rome"]), year: z.int().min(1900).max(2100) });
export const CITY = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
export const DESCRIPTION = "Get the current weather of a city";

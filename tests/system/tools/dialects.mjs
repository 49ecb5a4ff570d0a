// SPDX-License-Identifier: Apache-2.0
// The official packages for JavaScript against a server: node dialects.mjs FOLDER URL QUESTION ANSWER, where FOLDER has
// node_modules and ANSWER is what the chat says with temperature 0 and 24 tokens. Prints "fine".
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const [folder, url, question, answer] = process.argv.slice(2);
const require = createRequire(pathToFileURL(join(folder, "package.json")));
const OpenAI = require("openai");
const { Ollama } = require("ollama");

async function responses() {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  const whole = await client.responses.create({ model: "any", input: question, temperature: 0, max_output_tokens: 24 });
  assert.equal(whole.output_text, answer);
  assert.equal(whole.status, "incomplete");
  const stream = client.responses.stream({ model: "any", input: "Say yes.", temperature: 0 });
  let text = "", next = 0;
  for await (const event of stream) {
    assert.equal(event.sequence_number, next++);
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  const final = await stream.finalResponse();
  assert.equal(final.output_text, text);
  assert.equal(final.status, "completed");
  const refused = client.responses.create({ model: "any", input: "a", previous_response_id: "resp_1" });
  await assert.rejects(refused, (e) => e instanceof OpenAI.BadRequestError && e.param === "previous_response_id");
}

async function ollama() {
  const client = new Ollama({ host: url });
  const options = { temperature: 0, repeat_penalty: 1, num_predict: 24 };
  const messages = [{ role: "user", content: question }];
  assert.equal((await client.chat({ model: "any", messages, options })).message.content, answer);
  let text = "", last;
  for await (const part of await client.generate({ model: "any", prompt: question, options, stream: true })) {
    text += part.response;
    last = part;
  }
  assert.equal(text, answer);
  assert.ok(last.done && last.eval_count === 24);
  assert.equal((await client.list()).models.length, 1);
  assert.equal((await client.show({ model: "any" })).details.family, "llama");
  await assert.rejects(client.chat({ model: "any", messages, think: true }), (e) => e.status_code === 400);
}

await responses();
await ollama();
console.log("fine");

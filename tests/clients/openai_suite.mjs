// SPDX-License-Identifier: Apache-2.0
// The official JavaScript client against the server at BASE_URL: node openai_suite.mjs BASE_URL MODEL
// The package is taken from $OPENAI_PACKAGE/node_modules.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(path.join(process.env.OPENAI_PACKAGE, "package.json"));
const { OpenAI, BadRequestError, NotFoundError, APIConnectionTimeoutError, APIUserAbortError } = require("openai");

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const question = [{ role: "user", content: "Tell me about the sea." }];
const long = {
  model,
  messages: [{ role: "user", content: "Count from one upwards, one number a line, and never stop." }],
  temperature: 0,
  logit_bias: { 2: -100, 0: -100 },
  max_tokens: 600,
};

const chat = (more = {}) =>
  client.chat.completions.create({ model, messages: question, temperature: 0, max_tokens: 16, ...more });
const say = async (more) => (await chat(more)).choices[0].message.content;

async function refused(call, kind, param) {
  const error = await call().then(() => assert.fail("not refused"), (e) => e);
  assert.ok(error instanceof kind, `${error}`);
  if (param) assert.equal(error.param, param);
}

async function idle() {
  for (const end = Date.now() + 10000; (await client.get("/../ready")).active; )
    assert.ok(Date.now() < end, "a slot stays busy");
}

const checks = {
  async models() {
    const found = [];
    for await (const m of client.models.list()) found.push(m.id);
    assert.deepEqual(found, [model]);
    await refused(() => client.models.retrieve("other"), NotFoundError);
  },
  async wholeAndStream() {
    const whole = await chat();
    assert.equal(whole.usage.completion_tokens, 16);
    let text = "", last, usage;
    for await (const chunk of await chat({ stream: true, stream_options: { include_usage: true } })) {
      text += chunk.choices[0]?.delta.content ?? "";
      last = chunk.choices[0]?.finish_reason ?? last;
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(last, "length");
    assert.equal(usage.completion_tokens, 16);
  },
  async streamHelper() {
    const runner = client.chat.completions.stream({ model, messages: question, temperature: 0, max_tokens: 16 });
    assert.equal(await runner.finalContent(), await say());
  },
  async completions() {
    const ask = { model, prompt: "One two three", temperature: 0, max_tokens: 8 };
    const whole = await client.completions.create(ask);
    let text = "";
    for await (const chunk of await client.completions.create({ ...ask, stream: true })) text += chunk.choices[0].text;
    assert.equal(text, whole.choices[0].text);
    const echoed = await client.completions.create({ ...ask, echo: true, max_tokens: 0, logprobs: 1 });
    assert.equal(echoed.choices[0].text, ask.prompt);
    assert.equal(echoed.choices[0].logprobs.token_logprobs[0], null);
  },
  async sampling() {
    const greedy = await say(), hot = { temperature: 1.7, seed: 5 };
    assert.notEqual(await say(hot), greedy);
    assert.equal(await say(hot), await say(hot));
    assert.equal(await say({ ...hot, top_p: 1e-6 }), greedy);
    assert.equal(await say({ ...hot, top_k: 1 }), greedy);
    assert.equal(await say({ ...hot, min_p: 1 }), greedy);
    assert.notEqual(await say({ presence_penalty: 2, max_tokens: 40 }), await say({ max_tokens: 40 }));
    assert.notEqual(await say({ frequency_penalty: 2, max_tokens: 40 }), await say({ max_tokens: 40 }));
  },
  async limits() {
    const text = await say({ max_tokens: 24 }), word = text.split(" ")[5];
    const cut = (await chat({ max_tokens: 24, stop: [word] })).choices[0];
    assert.equal(cut.message.content, text.slice(0, text.indexOf(word)));
    assert.equal(cut.finish_reason, "stop");
    assert.equal((await chat({ max_tokens: undefined, max_completion_tokens: 3 })).usage.completion_tokens, 3);
    const three = await chat({ n: 3, temperature: 1.5, seed: 7 });
    assert.equal(new Set(three.choices.map((c) => c.message.content)).size, 3);
  },
  async logprobs() {
    const { logprobs, message } = (await chat({ logprobs: true, top_logprobs: 2 })).choices[0];
    assert.equal(logprobs.content.map((p) => p.token).join(""), message.content);
    assert.ok(logprobs.content.every((p) => p.top_logprobs.length === 2 && p.logprob <= 0));
  },
  async forms() {
    const schema = {
      type: "object",
      properties: { kind: { enum: ["cat", "dog"] }, age: { type: "integer" } },
      required: ["kind", "age"],
      additionalProperties: false,
    };
    const form = { type: "json_schema", json_schema: { name: "pet", schema, strict: true } };
    const pet = JSON.parse(await say({ response_format: form, max_tokens: 60, temperature: 1.2, seed: 3 }));
    assert.deepEqual(Object.keys(pet).sort(), ["age", "kind"]);
  },
  async tools() {
    const tool = {
      type: "function",
      function: {
        name: "get_weather",
        parameters: { type: "object", properties: { city: { enum: ["Paris", "Oslo"] } }, required: ["city"],
                      additionalProperties: false },
      },
    };
    const ask = { tools: [tool], tool_choice: "required", parallel_tool_calls: false, max_tokens: 80 };
    const whole = (await chat(ask)).choices[0];
    assert.equal(whole.finish_reason, "tool_calls");
    const given = whole.message.tool_calls[0].function;
    assert.ok(["Paris", "Oslo"].includes(JSON.parse(given.arguments).city));
    const runner = client.chat.completions.stream({ model, messages: question, temperature: 0, ...ask });
    const streamed = (await runner.finalMessage()).tool_calls[0].function;
    assert.equal(streamed.arguments, given.arguments);
    assert.equal(streamed.name, "get_weather");
  },
  async embeddings() {
    const { data } = await client.embeddings.create({ model, input: ["The cat sleeps.", "Stocks fell today."] });
    const plain = await client.embeddings.create({ model, input: "The cat sleeps.", encoding_format: "float" });
    assert.deepEqual(plain.data[0].embedding, Array.from(data[0].embedding));
    assert.ok(Math.abs(data[1].embedding.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-4);
  },
  async responses() {
    const ask = { model, input: "Tell me about the sea.", temperature: 0, max_output_tokens: 16 };
    assert.equal((await client.responses.create(ask)).output_text, await say());
    let text = "";
    for await (const event of await client.responses.create({ ...ask, stream: true }))
      if (event.type === "response.output_text.delta") text += event.delta;
    assert.equal(text, await say());
  },
  async errors() {
    await refused(() => chat({ temperature: 3 }), BadRequestError, "temperature");
    await refused(() => chat({ nonsense: 1 }), BadRequestError, "nonsense");
    await refused(() => chat({ top_logprobs: 21, logprobs: true }), BadRequestError, "top_logprobs");
    assert.ok(await say());
  },
  async leaving() {
    const stream = await client.chat.completions.create({ ...long, stream: true });
    for await (const chunk of stream) if (chunk.choices[0].delta.content) break;
    await idle();
    const abort = new AbortController();
    const call = client.chat.completions.create(long, { signal: abort.signal });
    setTimeout(() => abort.abort(), 100);
    await refused(() => call, APIUserAbortError);
    await refused(() => client.chat.completions.create(long, { timeout: 50 }), APIConnectionTimeoutError);
    await idle();
  },
  async eightAtOnce() {
    const prompts = [...Array(8).keys()].map((i) => [{ role: "user", content: `Tell me about the number ${i}.` }]);
    const alone = [];
    for (const messages of prompts) alone.push(await say({ messages }));
    assert.deepEqual(await Promise.all(prompts.map((messages) => say({ messages }))), alone);
  },
};

let failures = 0;
for (const [name, check] of Object.entries(checks))
  await check().catch((error) => {
    failures++;
    console.log(`${name}: ${error.stack}`);
  });
console.log(failures ? `${failures} of ${Object.keys(checks).length} failed` : "all passed");
process.exit(failures ? 1 : 0);

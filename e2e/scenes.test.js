// Scenes in real Chromium against the real binary: what a person sees on the first day, and what a page
// that is none of this node's business must not be able to do.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { mkdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { build, Node, temporary } from "./node.js";

const pictures = process.env.E2E_PICTURES; // a directory for screenshots; none are taken without it
const place = temporary();
let node, browser, foreign, foreignPort;

before(async () => {
  node = new Node(build(place.dir), `${place.dir}/data`);
  await node.start();
  // A page of somebody else. It is served to any name, as an attacker's server would.
  foreign = createServer((_, answer) => {
    answer.setHeader("Content-Type", "text/html");
    answer.end("<!doctype html><title>foreign</title>");
  });
  await new Promise((done) => foreign.listen(0, "127.0.0.1", done));
  foreignPort = foreign.address().port;
  browser = await chromium.launch({
    executablePath: process.env.E2E_CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync",
      "--host-resolver-rules=MAP app.example 127.0.0.1, MAP evil.example 127.0.0.1",
    ],
  });
  if (pictures) mkdirSync(pictures, { recursive: true });
});

after(async () => {
  await browser?.close();
  foreign?.close();
  if (node?.child) assert.equal(await node.stop(), 0, "the node's exit code");
  place.remove();
});

// open opens a page and collects what its console says.
async function open(url, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.lines = [];
  page.errors = [];
  page.on("console", (m) => (m.type() === "error" ? page.errors : page.lines).push(m.text()));
  page.on("pageerror", (e) => page.errors.push(String(e)));
  if (url) page.response = await page.goto(url);
  return page;
}

async function until(what, check, limit = 15000) {
  const end = Date.now() + limit;
  while (!(await check())) {
    if (Date.now() > end) assert.fail(`not within ${limit} ms: ${what}`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

const picture = (page, name) => pictures && page.screenshot({ path: `${pictures}/${name}.png`, fullPage: true });

test("the first event appears live on the start page", async () => {
  const page = await open(`${node.url}/`, { permissions: ["clipboard-read", "clipboard-write"] });
  assert.equal(page.response.status(), 200);
  await page.getByText("waiting for the topic greetings").waitFor();
  await picture(page, "empty");
  await page.getByRole("button", { name: "Send event" }).click();
  await page.getByText("Stored in partition 0 at offset 0.").waitFor();
  await page.locator(".row .value", { hasText: "hello" }).waitFor();
  await until("the page says that it is live", async () => (await page.locator("#state").innerText()) === "live");

  await node.send("greetings", "from a <b>terminal</b>");
  await page.locator(".row .value", { hasText: "from a <b>terminal</b>" }).waitFor();
  assert.equal(await page.locator(".row").count(), 2);
  assert.equal(await page.locator(".row b").count(), 0, "a value became HTML");

  // Commands are for this very node, and copied as they stand.
  const host = new URL(node.url).host;
  for (const code of await page.locator("code[data-command]").all()) assert.ok((await code.innerText()).includes(host));
  await page.getByRole("button", { name: "Copy: Send" }).click();
  assert.equal(await page.evaluate("navigator.clipboard.readText()"), `curl -d 'hello' ${node.url}/v1/topics/greetings/records`);
  await picture(page, "light");
  // Without the topic the page has asked for one that is not there; nothing else may be wrong.
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("the page goes on behind the last event after a restart", async () => {
  const page = await open(`${node.url}/`, { colorScheme: "dark", viewport: { width: 390, height: 844 } });
  await page.locator(".row").nth(1).waitFor();
  assert.equal(await node.stop(), 0);
  await until("the page notices", async () => (await page.locator("#state").getAttribute("data-state")) === "down");
  await node.start();
  await node.send("greetings", "after the restart");
  await page.locator(".row .value", { hasText: "after the restart" }).waitFor({ timeout: 20000 });
  assert.equal(await page.locator(".row").count(), 3, "each event once");
  assert.ok(await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than a phone");
  await picture(page, "phone-dark");
  await page.context().close();
});

test("values are shown as the text that they are", async () => {
  const page = await open(`${node.url}/`);
  const values = ["12.50", "9223372036854775808", '{"total": 12.50}', '"he said \\"hi\\""', "null"];
  const answer = await fetch(`${node.url}/v1/topics/greetings/records`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: `{"records":[${values.map((value) => `{"value":${value}}`).join(",")}]}`,
  });
  const last = (await answer.json()).results.at(-1);
  const row = page.locator(".row", { hasText: `${last.partition}@${last.offset}` });
  await row.waitFor();
  const shown = await page.locator(".row .value").allInnerTexts(); // the newest first
  assert.deepEqual(shown.slice(0, values.length).reverse(), ["12.50", "9223372036854775808", '{"total": 12.50}', 'he said "hi"', "null"]);
  await page.context().close();
});

test("the ten lines that the page shows work, on WebSocket and SSE, also from another port", async () => {
  const start = await open(`${node.url}/`);
  const snippets = { ws: await start.locator("#js-ws").innerText(), sse: await start.locator("#js-sse").innerText() };
  await start.context().close();
  const before = await node.values("greetings");
  for (const [name, code] of Object.entries(snippets)) {
    for (const origin of [node.url, `http://127.0.0.1:${foreignPort}`, `http://localhost:${foreignPort}`]) {
      const page = await open(`${origin}/`);
      const lines = page.lines.length;
      await page.evaluate(code);
      const sent = `${name} ${origin}`;
      await node.send("greetings", sent);
      await until(`${sent} arrives`, () => page.lines.some((line) => line.includes(sent)));
      assert.ok(page.lines[lines].includes(before[0]), `${name} from ${origin} begins with ${page.lines[lines]}`);
      await page.context().close();
    }
  }
});

// What a page does to reach a node behind its user's back. Each answers what it got, or "refused".
const attempts = (base) => ({
  read: async () => (await fetch(`${base}/v1/topics/greetings/partitions/0/records?offset=0`)).text(),
  "read opaquely": async () => (await fetch(`${base}/v1/topics`, { mode: "no-cors" })).text().then((t) => t || "refused"),
  write: async () => (await fetch(`${base}/v1/topics/greetings/records`, { method: "POST", body: "stolen" })).text(),
  "write opaquely": async () => (await fetch(`${base}/v1/topics/greetings/records`, { method: "POST", mode: "no-cors", body: "stolen" }), "refused"),
});

async function tryAll(page, base) {
  const got = await page.evaluate(async ({ base, source }) => {
    const results = {};
    const all = new Function("base", `return (${source})(base)`)(base);
    for (const [name, attempt] of Object.entries(all)) {
      results[name] = await attempt().catch(() => "refused");
    }
    results.socket = await new Promise((done) => {
      const ws = new WebSocket(`${base.replace("http", "ws")}/v1/ws`);
      ws.onmessage = (m) => done(m.data);
      ws.onerror = () => done("refused");
    });
    results.events = await new Promise((done) => {
      const events = new EventSource(`${base}/v1/topics/greetings/events`);
      events.addEventListener("ready", () => done("ready"));
      events.onerror = () => { events.close(); done("refused"); };
    });
    results.script = await new Promise((done) => {
      const script = document.createElement("script");
      script.src = `${base}/app.js`;
      script.onload = () => done("loaded");
      script.onerror = () => done("refused");
      document.head.append(script);
    });
    return results;
  }, { base, source: attempts.toString() });
  return got;
}

test("a page of a foreign origin can neither read nor write", async () => {
  const before = await node.values("greetings");
  const page = await open(`http://app.example:${foreignPort}/`);
  for (const [name, got] of Object.entries(await tryAll(page, node.url))) assert.equal(got, "refused", name);
  // A form needs no script's permission: it just goes there.
  await page.setContent(`<form method="post" enctype="text/plain" action="${node.url}/v1/topics/greetings/records"><input name="stolen" value="1"></form>`);
  const [answer] = await Promise.all([page.waitForResponse((r) => r.url().startsWith(node.url)), page.evaluate("document.forms[0].submit()")]);
  assert.equal(answer.status(), 403);
  assert.deepEqual(await node.values("greetings"), before);
  await page.context().close();

  // The same things are not refused to a page of this machine: it was the origin, and nothing else.
  const ours = await open(`http://127.0.0.1:${foreignPort}/`);
  const got = await tryAll(ours, node.url);
  assert.equal(JSON.parse(got.read).topic, "greetings");
  assert.equal(JSON.parse(got.write).stored, 1);
  assert.equal(JSON.parse(got.socket).op, "hello");
  assert.equal(got.events, "ready");
  await ours.context().close();
});

test("a name that was rebound to this machine reaches nothing", async () => {
  const before = await node.values("greetings");
  const base = `http://evil.example:${new URL(node.url).port}`;
  const page = await open(`${base}/`);
  assert.equal(page.response.status(), 403);
  assert.ok(!(await page.content()).includes("greetings"));
  const got = await tryAll(page, base);
  for (const name of ["socket", "events", "script"]) assert.equal(got[name], "refused", name);
  for (const name of ["read", "read opaquely", "write"]) assert.equal(JSON.parse(got[name]).status, 403, name);
  assert.deepEqual(await node.values("greetings"), before);
  await page.context().close();
});

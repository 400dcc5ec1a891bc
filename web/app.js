"use strict";

// The start page of a node: commands for its own address, and the topic `greetings`, live.

const topic = "greetings";
const mostRows = 200;
const show = (id) => document.getElementById(id);

// Commands, with this very node's address in them.
const http = location.origin;
const ws = http.replace(/^http/, "ws");
show("host").textContent = location.host;
for (const code of document.querySelectorAll("code[data-command]")) {
  code.textContent = code.dataset.command.replaceAll("{http}", http).replaceAll("{ws}", ws);
  addCopyButton(code);
}

function addCopyButton(code) {
  const title = code.closest(".command").querySelector("h3");
  const head = document.createElement("div");
  head.className = "command-head";
  title.replaceWith(head);
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy: ${title.textContent}`);
  head.append(title, button);
  code.parentElement.tabIndex = 0; // long commands scroll, by keyboard too
  button.addEventListener("click", async () => {
    button.textContent = (await copy(code)) ? "Copied" : "Press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  });
}

// The clipboard is there on loopback and https only; elsewhere the text is selected for the user to copy.
async function copy(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(code);
    return false;
  }
}

// The live list.
let shown = 0;

function addRow(place, value, tag, timestamp, kind) {
  show("empty")?.remove();
  const row = document.createElement("div");
  row.className = `row fresh ${kind}`;
  const at = document.createElement("span");
  at.className = "place";
  at.textContent = place;
  const text = document.createElement("span");
  text.className = "value";
  text.textContent = value;
  if (tag) {
    const note = document.createElement("span");
    note.className = "tag";
    note.textContent = ` ${tag}`;
    text.append(note);
  }
  const time = document.createElement("time");
  if (timestamp !== undefined) {
    const date = new Date(timestamp);
    time.dateTime = date.toISOString();
    time.textContent = date.toLocaleTimeString();
  }
  row.append(at, text, time);
  const rows = show("rows");
  rows.prepend(row);
  while (rows.childElementCount > mostRows) rows.lastElementChild.remove();
}

function addRecord(record) {
  shown++;
  show("count").textContent = shown === 1 ? "1 event" : `${shown} events`;
  const tag = record.value_encoding === "base64" ? "(base64)" : "";
  addRow(`${record.partition}@${record.offset}`, readable(record.value), tag, record.timestamp, "");
}

// readable is the text of a value as it is stored, so that 12.50 and 2^63 stay what they are: as numbers of
// JavaScript they would not. A value that is a JSON string is shown without its quotes.
function readable(text) {
  if (text === null) return "null";
  if (!text.startsWith('"')) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// One WebSocket; after a break it goes on behind the last record that was shown.
let from = "-20";
let tries = 0;
let after = 0; // milliseconds that the node asked to wait

function setState(state, text) {
  show("state").dataset.state = state;
  show("state").textContent = text;
}

function connect() {
  const socket = new WebSocket(`${ws}/v1/ws`, "weir.v1.json");
  const subscribe = () => {
    if (socket.readyState !== WebSocket.OPEN) return;
    socket.send(JSON.stringify({ id: 1, op: "subscribe", sub: "live", topic, from, value_format: "string" }));
  };
  socket.addEventListener("open", () => {
    tries = 0;
    subscribe();
  });
  socket.addEventListener("message", (event) => {
    const m = JSON.parse(event.data);
    switch (m.op) {
      case "ok":
        setState("live", "live");
        from = { cursor: m.cursor };
        break;
      case "records":
        m.records.forEach(addRecord);
        from = { cursor: m.cursor };
        break;
      case "gap":
        addRow(`${m.partition}@${m.from}`, `records up to ${m.to} are gone: ${m.reason}`, "", undefined, "gap");
        break;
      case "error":
        if (m.problem.code === "topic_not_found") {
          // The first event makes the topic.
          setState("wait", `waiting for the topic ${topic}`);
          from = "earliest";
          setTimeout(subscribe, 500);
        } else {
          setState("down", m.problem.detail);
        }
        break;
      case "closing":
        after = m.reconnect_after_ms;
        break;
    }
  });
  socket.addEventListener("close", (event) => {
    if (event.code >= 4500 && event.code < 4600) {
      setState("down", `the node closed the connection: ${event.reason}`);
      return;
    }
    const wait = after || Math.min(10000, 250 * 2 ** tries++) * (0.5 + Math.random());
    after = 0;
    setState("down", "disconnected, trying again");
    setTimeout(connect, wait);
  });
}

// Sending, over plain HTTP.
show("send").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.target.querySelector("button");
  button.disabled = true;
  try {
    const answer = await fetch(`/v1/topics/${topic}/records`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ records: [{ value: show("text").value }] }),
    });
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.detail ?? answer.statusText);
    const [stored] = body.results;
    tell(`Stored in partition ${stored.partition} at offset ${stored.offset}.`, "good");
  } catch (problem) {
    tell(`Not stored: ${problem.message}`, "bad");
  } finally {
    button.disabled = false;
  }
});

function tell(text, state) {
  show("note").textContent = text;
  show("note").dataset.state = state;
}

connect();

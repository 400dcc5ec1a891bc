// Starts the real binary on a free port with an empty data directory, and stops it again.
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");

// E2E_WEIR names a binary that is built already.
export function build(dir) {
  if (process.env.E2E_WEIR) return process.env.E2E_WEIR;
  const binary = join(dir, "weir");
  execFileSync("go", ["build", "-o", binary, "./cmd/weir"], { cwd: root, stdio: "inherit" });
  return binary;
}

export function temporary() {
  const dir = mkdtempSync(join(tmpdir(), "weir-e2e-"));
  return { dir, remove: () => rmSync(dir, { recursive: true, force: true }) };
}

export class Node {
  constructor(binary, data) {
    this.binary = binary;
    this.data = data;
    this.address = "127.0.0.1:0";
  }

  async start() {
    const child = spawn(this.binary, ["serve", "--http", this.address, "--data", this.data], {
      stdio: ["ignore", "pipe", "pipe"],
      env: Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("WEIR_"))), // settings of whoever runs this
    });
    this.child = child;
    this.exited = new Promise((resolve) => child.once("exit", (code) => resolve(code)));
    let text = "";
    this.url = await new Promise((resolve, reject) => {
      const look = (chunk) => {
        text += chunk;
        const found = text.match(/serves on (http:\/\/127\.0\.0\.1:\d+)/);
        if (found) resolve(found[1]);
      };
      child.stdout.on("data", look);
      child.stderr.on("data", look);
      this.exited.then((code) => reject(new Error(`weir serve ended with ${code}:\n${text}`)));
    });
    this.address = new URL(this.url).host; // the same one after a restart
  }

  async stop() {
    this.child.kill("SIGTERM");
    return await this.exited;
  }

  async send(topic, value) {
    const answer = await fetch(`${this.url}/v1/topics/${topic}/records`, { method: "POST", body: value, headers: { "Content-Type": "text/plain" } });
    if (answer.status !== 200) throw new Error(`produce: ${answer.status} ${await answer.text()}`);
  }

  // values are all values of a topic's partition 0, or null when there is no such topic.
  async values(topic) {
    const answer = await fetch(`${this.url}/v1/topics/${topic}/partitions/0/records?offset=earliest&wait_ms=0`);
    if (answer.status === 404) return null;
    return (await answer.json()).records.map((r) => r.value);
  }
}

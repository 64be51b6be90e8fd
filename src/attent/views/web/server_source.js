// The source of a view whose numbers a server computes when they are asked for.

const PART = "X-Attent-Part";

// A connection to the server that gave this page; the token stands behind # in its address.
export class Server {
  constructor(token) {
    this.headers = { "X-Attent-Token": token };
  }

  async get(path, query = {}, signal = undefined) {
    const asked = new URLSearchParams(query).toString();
    return answered(asked ? `${path}?${asked}` : path, { headers: this.headers, signal });
  }

  async post(path, body, signal = undefined) {
    const headers = { ...this.headers, "Content-Type": "application/json" };
    return answered(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  }

  // The events of an answer that grows, as they come.
  async *events(path, body, signal = undefined) {
    const answer = await this.post(path, body, signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const event = JSON.parse(part.replace(/^data: /, ""));
        if (event.kind === "error") throw new Error(event.error);
        yield event;
      }
    }
  }
}

// What every component asks; a scene is known by its number.
export class ServerSource {
  constructor(server, number, scene) {
    this.server = server;
    this.number = number;
    this.scene = scene;
    this.kept = new Map();
  }

  static async open(server, number) {
    const answer = await server.get(`/api/scenes/${number}`);
    return new ServerSource(server, number, await answer.json());
  }

  row(group, layer, head, query) {
    return this.once("row", { group, layer, head, query });
  }

  column(group, layer, head, key) {
    return this.once("column", { group, layer, head, key });
  }

  tile(group, layer, head, level, y, x, how, signal = undefined) {
    return this.part("tile", { group, layer, head, level, y, x, how }, signal);
  }

  async thumbnail(group, layer, head) {
    const part = await this.once("thumbnail", { group, layer, head });
    return { ...part, top: part.values.reduce((most, value) => Math.max(most, Math.abs(value)), 0) };
  }

  // Figures of each layer and head, of one row in `every`.
  async summary(group) {
    const answer = await this.server.get(`/api/scenes/${this.number}/summary`, { group });
    return answer.json();
  }

  // The pixels of the picture, red, green and blue of each.
  async pixels() {
    const answer = await this.server.get(`/api/scenes/${this.number}/picture`);
    return new Uint8Array(await answer.arrayBuffer());
  }

  // Small answers are kept, the last few hundred of them.
  once(what, query) {
    const key = JSON.stringify([what, query]);
    if (!this.kept.has(key)) {
      const part = this.part(what, query);
      part.catch(() => this.kept.delete(key));
      this.kept.set(key, part);
      if (this.kept.size > 400) this.kept.delete(this.kept.keys().next().value);
    }
    return this.kept.get(key);
  }

  async part(what, query, signal = undefined) {
    const answer = await this.server.get(`/api/scenes/${this.number}/${what}`, query, signal);
    const about = JSON.parse(answer.headers.get(PART));
    return { ...about, values: new Float32Array(await answer.arrayBuffer()) };
  }
}

async function answered(path, asked) {
  let answer;
  try {
    answer = await fetch(path, asked);
  } catch (error) {
    // each browser has its own words for it, which tell a reader nothing
    throw asked.signal?.aborted ? error : new Error("the server does not answer");
  }
  return checked(answer);
}

async function checked(answer) {
  if (answer.ok) return answer;
  let reason = answer.statusText;
  try {
    reason = (await answer.json()).error;
  } catch {
    // an answer that is no JSON has no reason beside its status
  }
  throw new Error(reason);
}

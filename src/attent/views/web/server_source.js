// The source of a view whose numbers a server computes when they are asked for.

import { Connection } from "./connection.js";
import { plainTexts } from "./words.js";

const PART = "X-Attent-Part";

// A connection to the server that gave this page; the token stands behind # in its address.
export class Server extends Connection {
  constructor(token) {
    super({ "X-Attent-Token": token });
  }

  /** The source of a scene by its number. */
  async open(number) {
    const answer = await this.get(`/api/scenes/${number}`);
    return new ServerSource(this, number, await answer.json());
  }
}

// What every component asks; a scene is known by its number.
export class ServerSource {
  constructor(server, number, scene) {
    this.server = server;
    this.number = number;
    this.scene = plainTexts(scene);
    this.kept = new Map();
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

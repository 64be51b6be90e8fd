// A connection to the server that gave a page: questions, and answers that grow.

export class Connection {
  /** `headers` go with every question. */
  constructor(headers = {}) {
    this.headers = headers;
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
  throw Object.assign(new Error(reason), { status: answer.status });
}

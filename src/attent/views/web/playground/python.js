// A model of the playground as a program in Python: the same first weights, the same batches and so the same losses, with attent's attention.
import { parse } from "./formula.js";
import { FARTHEST, PERIOD, shapes, WIDTH } from "./model.js";
import { TRAINING } from "./pairs.js";
import { BATCH, DECAYS, RATE, texts, TINY, VOCABULARIES } from "./training.js";

const NORMALIZERS = { top_k: "attent.attention.normalizers.TopK(2)" };
const MASKS = { none: "None", causal: '"causal"', window: "attent.attention.masks.Window(2, 2)" };

/** The expression of a node of the formula's tree; what is constant is a number of Python, all else a tensor. */
function expression({ kind, of, name, value, parts = [] }) {
  const [left, right] = parts.map(expression);
  if (kind === "number") return String(value);
  if (kind === "name") return ["q", "k", "d"].includes(name) ? name : `self.${name}`;
  if (kind === "matrix") return `(${right} @ ${left}.T)`;
  if (kind === "negative") return `(-${left})`;
  if (kind === "dot") return `(${left} * ${right}).sum(-1, keepdim=True)`;
  if (kind === "norm") return `torch.linalg.vector_norm(${left}, dim=-1, keepdim=True)`;
  if (parts.length === 1) return kind === "abs" ? `abs(${left})` : `${of ? "torch" : "math"}.${kind}(${left})`;
  return `(${left} ${kind === "^" ? "**" : kind} ${right})`;
}

/** The program of these settings, which trains for some updates and prints the loss of each. */
export function pythonOf(settings, updates = 50) {
  const tree = parse(settings.formula);
  const { v, W, W1, W2, ...others } = shapes(VOCABULARIES[0].length, VOCABULARIES[1].length);
  const shape = Object.entries({ ...others, v, W, W1, W2 }).map(([name, [rows, columns, size]]) => `    "${name}": (${rows}, ${columns}, ${size}),\n`).join("");
  const whole = tree.of === "pair" ? "" : " + 0 * (q * k).sum(-1, keepdim=True)";
  const pairs = texts(TRAINING).map((pair) => pair.map((words) => words.join(" ")).join("|")).join("\n");
  const context = settings.fixed
    ? "memory.mean(0).expand(len(states), -1)"
    : `attent.attend(states @ self.W_S, memory, memory, score=self.score, normalizer=${NORMALIZERS[settings.normalizer] ?? `"${settings.normalizer}"`}, mask=${MASKS[settings.mask]}, query_start=0)`;
  const imports = ["math\n", "attent", "torch"].map((name) => `import ${name}`).join("\n");
  const places = settings.positions ? " + PLACES[: len(source)]" : "";
  return `"""Attention as the playground of attent trains it; the losses are the same. Score: ${settings.formula.replace(/[\\"]/g, "")}"""

${imports}
from torch import nn

torch.set_default_dtype(torch.float64)
WIDTH, BATCH, SEED, UPDATES = ${WIDTH}, ${BATCH}, ${settings.seed}, ${updates}
# rows, columns and the largest first number of each parameter
SHAPES = {
${shape}}


def generator(state):
    """Return a function that draws numbers in [0, 1): mulberry32, as in JavaScript."""

    def draw():
        nonlocal state
        state = (state + 0x6D2B79F5) & 0xFFFFFFFF
        number = ((state ^ (state >> 15)) * (state | 1)) & 0xFFFFFFFF
        number ^= (number + (number ^ (number >> 7)) * (number | 61)) & 0xFFFFFFFF
        return (number ^ (number >> 14)) / 2**32

    return draw


def sinusoids(length):
    """Return the positions' sines and cosines, (length, WIDTH)."""
    angle = torch.arange(length)[:, None] / ${PERIOD} ** (torch.arange(0, WIDTH, 2) / WIDTH)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(1)


PLACES = sinusoids(${FARTHEST})


class Model(nn.Module):
    def __init__(self, draw):
        super().__init__()
        for name, (rows, columns, size) in SHAPES.items():
            numbers = [size * (2 * draw() - 1) for _ in range(rows * columns)]
            setattr(self, name, nn.Parameter(torch.tensor(numbers).view(rows, columns)))

    def score(self, query, key):
        """Return the score of each query (B, H, Tq, D) and key (B, H, Tk, D): (B, H, Tq, Tk)."""
        q, k, d = query[..., :, None, :], key[..., None, :, :], query.shape[-1]
        return (${expression(tree)}${whole}).squeeze(-1)

    def encode(self, source):
        x = self.E[source]${places}
        query, key = ${settings.identity ? "x, x" : "x @ self.W_Q, x @ self.W_K"}
        return x + attent.attend(query, key, x @ self.W_V)

    def decode(self, memory, written):
        state, states = torch.zeros(WIDTH), []
        for row in self.Y[written] + PLACES[: len(written)]:
            state = torch.tanh(row + state @ self.R)
            states.append(state)
        states = torch.stack(states)
        context = ${context}
        return torch.tanh(context @ self.C1 + states @ self.C2) @ self.O


def read(text):
    """Return pairs as numbers of words: source, what was written before each word, and the words."""
    pairs = [[side.split() for side in line.split("|")] for line in text.strip().splitlines()]
    source, target = (sorted({word for pair in pairs for word in pair[side]}) for side in (0, 1))
    target = ["[START]", "[STOP]", *target]
    return [
        ([source.index(word) for word in one], [0, *(numbers := [target.index(word) for word in other])], [*numbers, 1])
        for one, other in pairs
    ]


def train(pairs):
    draw, order = generator(SEED), []
    model = Model(draw)
    optimizer = torch.optim.Adam(model.parameters(), lr=${RATE}, betas=(${DECAYS.join(", ")}), eps=${TINY})
    for _ in range(UPDATES):
        if len(order) < BATCH:
            order = list(range(len(pairs)))
            for last in range(len(order) - 1, 0, -1):
                other = int(draw() * (last + 1))
                order[last], order[other] = order[other], order[last]
        batch, order = [pairs[place] for place in order[:BATCH]], order[BATCH:]
        losses = []
        for source, written, words in batch:
            logits = model.decode(model.encode(source), written)
            losses.append(nn.functional.cross_entropy(logits, torch.tensor(words), reduction="sum"))
        loss = sum(losses) / sum(len(words) for _, _, words in batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # nats per word
        print(f"{loss.item():.6f}", flush=True)
    return model


PAIRS = """
${pairs}
"""

if __name__ == "__main__":
    train(read(PAIRS))
`;
}

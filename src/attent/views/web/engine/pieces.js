// SentencePiece's pieces: byte-pair encoding, which merges the pair of the highest score again and again, and the unigram model, which chooses the
// most probable pieces. What has no piece is written as bytes.

// "▁" is a space; one in the text is escaped by two characters that Unicode leaves free
const [SPACE, ESCAPE, LOW_LINE] = ["▁", "\u{10ffff}", "\u{10fffe}"];
const [UNK_PENALTY, SPECIALS] = [10, 4];

export class Pieces {
  /** `pieces` are all by id, `scores` those of the ones from `first` on, which are no bytes and no special tokens. */
  constructor({ kind, pieces, scores, first }) {
    this.isUnigram = kind === "unigram";
    this.names = pieces;
    this.size = pieces.length;
    [this.first, this.bytes] = [first, SPECIALS];
    this.known = new Map(pieces.slice(first).map((piece, index) => [piece, index + first]));
    this.scores = Float32Array.from(scores);
    this.longest = pieces.slice(first).reduce((most, piece) => Math.max(most, [...piece].length), 1);
    this.unknown = Math.fround(this.scores.reduce((least, score) => Math.min(least, score), Infinity) - UNK_PENALTY);
  }

  scoreOf(piece) {
    const token = this.known.get(piece);
    return token === undefined ? null : this.scores[token - this.first];
  }

  pieces(text) {
    return this.encode(text).map((token) => this.names[token]);
  }

  encode(text) {
    if (!text) return [];
    const escaped = text.replaceAll(ESCAPE, ESCAPE + ESCAPE).replaceAll(SPACE, ESCAPE + LOW_LINE).replaceAll(" ", SPACE);
    const characters = [...(SPACE + escaped)];
    const split = this.isUnigram ? this.mostProbable(characters) : wordsOf(characters).flatMap((word) => this.merged(word));
    return split.flatMap((piece) => this.known.get(piece) ?? [...new TextEncoder().encode(piece)].map((byte) => this.bytes + byte));
  }

  /** Merge the neighbors whose piece has the highest score, the first of equal ones, until none has a piece. */
  merged(symbols) {
    for (;;) {
      let [best, place] = [-Infinity, -1];
      for (let index = 0; index + 1 < symbols.length; index++) {
        const score = this.scoreOf(symbols[index] + symbols[index + 1]);
        if (score !== null && score > best) [best, place] = [score, index];
      }
      if (place < 0) return symbols;
      symbols.splice(place, 2, symbols[place] + symbols[place + 1]);
    }
  }

  /** The pieces with the largest sum of scores (Viterbi), in float32 as SentencePiece adds them. */
  mostProbable(characters) {
    const best = Array.from({ length: characters.length + 1 }, () => ({ score: -Infinity, begin: 0 }));
    best[0].score = 0;
    const offer = (begin, end, score) => {
      const total = Math.fround(score + best[begin].score);
      if (best[end].score === -Infinity || total > best[end].score) best[end] = { score: total, begin };
    };
    for (let begin = 0; begin < characters.length; begin++) {
      let piece = "";
      for (let end = begin + 1; end <= Math.min(begin + this.longest, characters.length); end++) {
        piece += characters[end - 1];
        const score = this.scoreOf(piece);
        if (score !== null) offer(begin, end, score);
        else if (end === begin + 1) offer(begin, end, this.unknown);
      }
    }
    const pieces = [];
    for (let end = characters.length; end > 0; end = best[end].begin) pieces.unshift(characters.slice(best[end].begin, end).join(""));
    return pieces;
  }

  decode(ids) {
    const end = ids.indexOf(3);
    let [text, bytes] = ["", []];
    const flush = () => { text += textOf(bytes); bytes = []; };
    (end < 0 ? ids : ids.slice(0, end)).filter((token) => token >= SPECIALS).forEach((token, place) => {
      if (token < this.first) return bytes.push(token - this.bytes);
      flush();
      // the space before a text is not the text's
      text += place ? this.names[token] : this.names[token].replace(/^▁/, "");
    });
    flush();
    return text.replaceAll(SPACE, " ").replace(new RegExp(`${ESCAPE}([${ESCAPE}${LOW_LINE}])`, "gu"), (_, kind) => (kind === ESCAPE ? ESCAPE : SPACE));
  }

  piece(token) {
    return token < this.first ? "" : this.names[token];
  }
}

/** Characters word by word, each with the space before it, which no piece goes beyond. */
function wordsOf(characters) {
  const words = [];
  for (const character of characters) {
    if (character === SPACE || !words.length) words.push([]);
    words[words.length - 1].push(character);
  }
  return words;
}

const UTF8 = { fatal: true, ignoreBOM: true };

/** The text of bytes in UTF-8; each byte that is no part of a character is "�". */
function textOf(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length;) {
    const found = [1, 2, 3, 4].map((count) => characterOf(bytes.slice(at, at + count))).find(Boolean);
    text += found ?? "\ufffd";
    at += found ? new TextEncoder().encode(found).length : 1;
  }
  return text;
}

function characterOf(bytes) {
  try {
    return new TextDecoder("utf-8", UTF8).decode(Uint8Array.from(bytes));
  } catch {
    return "";
  }
}

// From text to token ids and back, as attent.text.tokenizers does: characters, words, and SentencePiece's pieces (in pieces.js).
import { Pieces } from "./pieces.js";

export const PAD = 0;
export const UNK = 1;
export const BOS = 2;
export const EOS = 3;
export const SPECIALS = 4;
const [BOS_LABEL, EOS_LABEL, UNK_LABEL, NO_LABEL] = ["<s>", "</s>", "<unk>", "\ufffd"];

// what Python calls white space, and the signs that are pieces of their own
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const SIGNS = "!-\\/:-@\\[-\\^`\\{-~\\xa1-\\xa9\\xab-\\xb4\\xb6-\\xb9\\xbb-\\xbf\\xd7\\xf7\\u2010-\\u2027\\u2030-\\u205e\\u3001-\\u3020\\uff01-\\uff0f\\uff1a-\\uff20\\uff3b-\\uff40\\uff5b-\\uff65";
const PIECE = new RegExp(` ?[^${SPACE}${SIGNS}]+| ?[${SIGNS}]|[${SPACE}]`, "gu");

/** The ids up to the first EOS that stand for text. */
export function textIds(ids) {
  const end = ids.indexOf(EOS);
  return (end < 0 ? ids : ids.slice(0, end)).filter((token) => token >= SPECIALS);
}

/** A list of entries, one id each: "characters", or "words" with the space before them. */
class Vocabulary {
  constructor({ kind, entries }) {
    this.isOfWords = kind === "words";
    this.entries = entries;
    this.size = SPECIALS + entries.length;
    this.known = new Map(entries.map((entry, index) => [entry, index + SPECIALS]));
  }

  pieces(text) {
    if (!this.isOfWords) return [...text];
    return text ? ` ${text}`.match(PIECE) ?? [] : [];
  }

  encode(text) {
    return this.pieces(text).map((piece) => this.known.get(piece) ?? UNK);
  }

  decode(ids) {
    const text = textIds(ids).map((token) => this.piece(token)).join("");
    return this.isOfWords && text.startsWith(" ") ? text.slice(1) : text;
  }

  piece(token) {
    return token >= SPECIALS ? this.entries[token - SPECIALS] : "";
  }
}

export function tokenizerOf(described) {
  return described.entries ? new Vocabulary(described) : new Pieces(described);
}

/** A printable label of a token. */
export function labelOf(tokenizer, token) {
  return { [EOS]: EOS_LABEL, [BOS]: BOS_LABEL, [UNK]: UNK_LABEL }[token] ?? (tokenizer.piece(token) || NO_LABEL);
}

// signs that keyboards and texts use interchangeably
const VARIANTS = [" \u00a0\u202f\u2009", "-‐‑–—", "'’ʼ‘", ".。．", ",，、،"];

/** Adapt the spelling of a text to a tokenizer that does not know all of it, and return the text and its ids. */
export function respelled(text, tokenizer) {
  const ids = tokenizer.encode(text);
  if (!ids.includes(UNK)) return { text, ids };
  const isKnown = (variant) => !tokenizer.encode(variant).includes(UNK);
  const known = (character) => {
    const signs = VARIANTS.filter((group) => group.includes(character)).flatMap((group) => [...group]);
    return [character, character.normalize("NFKC"), ...signs].find(isKnown) ?? character;
  };
  const composed = [...text.normalize("NFC")].map(known).join("");
  const forms = [composed, composed.replace(/^ +| +$/g, "").replace(/ {2,}/g, " ")];
  forms.push(...forms.map((form) => form.replace(/[\p{L}\p{N}_]+/u, (word) => word.toLowerCase())));
  const spellings = forms.map((form) => ({ text: form, ids: tokenizer.encode(form) }));
  const unknown = ({ ids: own }) => own.filter((token) => token === UNK).length;
  return spellings.reduce((best, spelling) => (unknown(spelling) < unknown(best) ? spelling : best));
}

/** The distinct pieces of a text that a tokenizer does not know, in order. */
export function unknownPieces(text, tokenizer) {
  const ids = tokenizer.encode(text);
  return [...new Set(tokenizer.pieces(text).filter((_, place) => ids[place] === UNK))];
}

const MASK = "[MASK]";
// stands for a blank while a tokenizer splits the text around it
const PLACEHOLDER = "\ue000";
const IN_BYTES = ["<0xEE>", "<0x80>", "<0x80>"];

/** The tokens and labels of a text with blanks, [MASK] or _____, whose id is the tokenizer's size, and their places. */
export function withBlanks(text, tokenizer) {
  const marked = text.replaceAll(PLACEHOLDER, " ").replaceAll(MASK, PLACEHOLDER).replace(/(?<![\p{L}\p{N}_])_{3,}(?![\p{L}\p{N}_])/gu, PLACEHOLDER);
  const [labels, ids] = [tokenizer.pieces(marked), tokenizer.encode(marked)];
  const [tokens, pieces, places] = [[], [], []];
  for (let index = 0; index < labels.length; index++) {
    let piece = labels[index];
    const token = ids[index];
    if (IN_BYTES.every((byte, more) => labels[index + more] === byte)) {
      piece = PLACEHOLDER;
      index += IN_BYTES.length - 1;
      if (pieces[pieces.length - 1] === "▁") for (const list of [tokens, pieces]) list.pop();
    }
    const isBlank = piece.replace(/^ /, "") === PLACEHOLDER;
    if (!isBlank && piece.includes(PLACEHOLDER)) throw new Error(`${MASK} stands for a whole word: put spaces around it in '${piece.replaceAll(PLACEHOLDER, MASK)}'`);
    if (isBlank) places.push(pieces.length);
    tokens.push(isBlank ? tokenizer.size : resolved(piece, token, tokenizer));
    pieces.push(isBlank ? MASK : piece);
  }
  return { tokens, pieces, places };
}

/** The token of a piece; of one that is unknown, that of the piece without spaces, or else in lower case. */
function resolved(piece, token, tokenizer) {
  const bare = piece.trim();
  for (const form of token === UNK ? [bare, bare.toLowerCase()] : []) {
    const ids = tokenizer.encode(form);
    if (ids.length === 1 && ids[0] !== UNK) return ids[0];
  }
  return token;
}

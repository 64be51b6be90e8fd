// Numbers that a page has inside: base64 of what was deflated.

/** The bytes of a pack of the page. */
export async function unpacked(name) {
  const found = document.querySelector(`script[data-pack="${name}"]`);
  if (!found) throw new Error(`the page is damaged: it has no ${name}`);
  const letters = atob(found.textContent);
  const bytes = new Uint8Array(letters.length);
  for (let place = 0; place < bytes.length; place += 1) bytes[place] = letters.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Bytes as 16-bit floats. */
export function halves(bytes) {
  const codes = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2);
  values ??= Float32Array.from({ length: 2 ** 16 }, (_, code) => half(code));
  const found = new Float32Array(codes.length);
  for (let place = 0; place < codes.length; place += 1) found[place] = values[codes[place]];
  return found;
}

// the value of each code, once it is needed
let values = null;

function half(code) {
  const sign = code & 0x8000 ? -1 : 1;
  const exponent = (code >> 10) & 0x1f;
  const fraction = code & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return exponent === 31 ? NaN : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** Bytes as shares of a largest weight, with a sign where there is one. */
export function shares(bytes, top, signed) {
  return Float32Array.from(bytes, signed ? (code) => ((code - 128) / 127) * top : (code) => (code / 255) * top);
}

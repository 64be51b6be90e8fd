// Whether a text can be a date: attent.tasks.dates.generated asks for a year of four digits, in any script.

const isDigit = (code) => /^\p{Nd}$/u.test(String.fromCodePoint(code));

/** Throw the reason why a text has no year of a range, [first, last]. */
export function checkYear(text, [first, last]) {
  for (const [digits] of text.matchAll(/\p{Nd}+/gu)) {
    const values = [...digits].map(valueOf);
    const year = Number(values.join(""));
    if (values.length === 4 && year >= first && year <= last) return;
  }
  throw new Error(`'${text}' has no four-digit year from ${first} to ${last}`);
}

// the digits of a script follow each other from zero to nine
function valueOf(digit) {
  const code = digit.codePointAt(0);
  let before = 0;
  while (isDigit(code - before - 1)) before += 1;
  return before % 10;
}

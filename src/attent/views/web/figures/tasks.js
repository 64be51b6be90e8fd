// What a reader is asked to try in each figure, by the name of its place; docs/design-pages.md has the questions.

export const TASKS = {
  recurrent: "Move the step along the translation: which words does the network read, and where does one fixed vector go wrong?",
  queries: "Drag the query q (square) or a key (diamond), or move it with the arrow keys: which key gets the weight? The pale arrow is where it was; " +
    "the circle is the average of the values, here the keys themselves.",
  scores: "Choose a score, then drag the key of “the” (diamond) away from the middle: which scores grow with its length? Arrow keys move it, too.",
  normalizers: "Drag a score: what happens to the weights of the other words? Then choose another normalizer, or divide all scores by a temperature.",
  projections: "Type a sentence, and point at a row: does the word attend to itself? Compare the left table, without projections, with a head of the " +
    "trained encoder.",
  context: "Change the noun, to horse, cow or cats: what changes in the vector of “the”? It is compared with its vector in “the black dog sings”.",
  heads: "Choose a French word: what do two heads read to write it? Then choose other heads, or type another sentence.",
  positions: "Move both words along the sentence (p), then apart (d): when does the dot product change? Below it, take the positions away from the " +
    "translator.",
  masks: "Choose a mask, or click a cell (Enter) to hide or show that pair: the other weights of its row share what it had.",
  transformer: "Press next: through the encoder once, then through the decoder for each word, from <s> ([START]) until it writes </s> ([STOP]).",
  seeing: "Choose one of the twelve small maps, then point at a row, or choose a word below: where does it attend?",
  lookup: "Move the match from exact to soft: how many keys answer? Then move the query between two keys.",
  regression: "Drag a point (circle) or the query (square), and change the bandwidth: when does the curve follow single points, and when is it flat? Dark " +
    "points have the largest weights.",
  patches: "Point at a patch of the digit, or move with the arrow keys: where is it in the sequence, and how much does the class token attend to it?",
};

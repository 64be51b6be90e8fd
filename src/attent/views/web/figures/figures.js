// The live figures of the documentation: each is added to the place with its name, if the page has it. docs/design-pages.md lists their questions.
import { positions, regression } from "./curves.js";
import { context, heads, projections, seeing } from "./maps.js";
import { patches, recurrent, transformer } from "./steps.js";
import { Translator } from "./translator.js";
import { queries, scores } from "./vectors.js";
import { lookup, masks, normalizers } from "./weights.js";

const ALONE = { queries, scores, normalizers, lookup, regression };
const RECORDED = { recurrent, patches };
const TRANSLATED = { projections, context, heads, positions, masks, transformer, seeing };

/** Draw the figures of the page. scripts/site_figures.py puts what they read, ATTENT_FIGURES, into pages that need it. */
function draw(figures, read) {
  for (const [name, figure] of Object.entries(figures)) {
    const place = document.getElementById(`figure-${name}`);
    if (place) figure(place, read());
  }
}

draw(ALONE, () => null);
draw(RECORDED, () => globalThis.ATTENT_FIGURES.recorded);
draw(TRANSLATED, () => new Translator(globalThis.ATTENT_FIGURES.translator));

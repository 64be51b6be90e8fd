// The training in a worker, so that the page never waits for it.
//
// The page sends {start: settings, number}, {run: true or false} and {show: {source, target}}, texts as arrays of words; target null for what the
// model itself writes. It gets {number, updates, losses, ...} with what is shown, {number, updates, error, right}, and {number, failed}.
import { areRight, ENCODED, errorRate, forced, Training, translate, VOCABULARIES } from "./training.js";

// Milliseconds of training between two messages, updates between two scores, and between two counts of whole sentences.
const [SLICE, SCORED, COUNTED] = [80, 25, 100];
/** Updates after which training pauses by itself. */
export const LAST = 600;

export function serve(port) {
  let [training, number, shown, isRunning, isScored, timer] = [null, 0, null, false, false, 0];

  const show = (losses) => {
    if (!training || !shown) return;
    const { model } = training;
    const pair = ENCODED.pair(shown.source, shown.target ?? []);
    const writes = translate(model, pair.source).map((word) => VOCABULARIES[1][word]);
    const { weights, own } = forced(model, shown.target ? pair : ENCODED.pair(shown.source, writes));
    const rows = shown.target ?? writes;
    const data = weights.data.slice(0, rows.length * shown.source.length);
    port.postMessage({ number, updates: training.updates, losses, source: shown.source, rows, weights: data, own: own.data.slice(), writes });
  };
  const score = () => {
    const right = !training.updates || training.updates % COUNTED ? null : areRight(training.model);
    port.postMessage({ number, updates: training.updates, error: errorRate(training.model), right });
  };
  const step = () => {
    if (!isScored) score();
    isScored = true;
    if (!isRunning) return;
    const [end, losses] = [performance.now() + SLICE, []];
    do {
      losses.push(training.update());
      if (!Number.isFinite(losses.at(-1))) {
        isRunning = false;
        port.postMessage({ number, failed: `At update ${training.updates}, the loss is no number any more: the formula grows too large, or is not defined for some scores.` });
        return;
      }
      if (training.updates % SCORED === 0) score();
      if (training.updates % LAST === 0) isRunning = false;
    } while (isRunning && performance.now() < end);
    show(losses);
    timer = setTimeout(step);
  };

  port.onmessage = ({ data }) => {
    if (data.start) {
      training = new Training(data.start);
      number = data.number;
      isScored = false;
    }
    if (data.show) shown = data.show;
    if (data.run !== undefined) isRunning = data.run;
    clearTimeout(timer);
    show([]);
    timer = setTimeout(step);
  };
}

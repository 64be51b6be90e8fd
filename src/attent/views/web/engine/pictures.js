// Pictures as sequences of patches, each channel standardized, as attent.tasks.classification.inputs does.
import { Matrix } from "../formula/matrix.js";

/** The vectors (T, P·P·C) of a picture {height, width, channels, values}, bytes or numbers from 0 to 1, patches row by row. */
export function vectorsOf({ height, width, channels, values }, { height: down, width: across, channels: depth, patch, mean, deviation }) {
  if (height !== down || width !== across || channels !== depth) {
    throw new Error(`the run reads pictures (H, W, C) = (${down}, ${across}, ${depth}), got (${height}, ${width}, ${channels})`);
  }
  const full = values instanceof Uint8Array || values instanceof Uint8ClampedArray ? 255 : 1;
  const columns = width / patch;
  const vectors = new Matrix((height / patch) * columns, patch * patch * channels);
  values.forEach((value, at) => {
    const [channel, pixel] = [at % channels, Math.floor(at / channels)];
    const [y, x] = [Math.floor(pixel / width), pixel % width];
    const place = ((y % patch) * patch + (x % patch)) * channels + channel;
    const row = Math.floor(y / patch) * columns + Math.floor(x / patch);
    vectors.data[row * vectors.columns + place] = (Math.fround(value / full) - mean[channel]) / deviation[channel];
  });
  return vectors;
}

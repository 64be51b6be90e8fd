// Which part of a map is seen, and at which size: from pixels of a canvas to cells and back.

// Pixels that a cell may be wide at most, and those beside and above the cells for labels.
const LARGEST = 40;
const [LEFT, ABOVE, FLAT] = [[48, 130], [44, 110], 22];

export class Scale {
  constructor() {
    [this.rows, this.columns] = [1, 1];
    [this.left, this.above] = [LEFT[0], ABOVE[0]];
    this.labels = [0, 0];
    [this.wide, this.high, this.size] = [400, 400, 1];
    [this.first, this.down] = [0, 0];
  }

  /** The map's size, in cells, and how long the longest labels of rows and of columns are, in pixels. */
  of(rows, columns, labels) {
    [this.rows, this.columns, this.labels] = [rows, columns, labels];
  }

  /** The room for it, in pixels. */
  room(wide, tallest) {
    const within = (length, [least, most]) => Math.min(Math.max(length + 14, least), most);
    this.left = Math.min(within(this.labels[0], LEFT), wide * 0.25);
    const whole = Math.min((wide - this.left) / this.columns, LARGEST);
    // labels that are no wider than their columns lie flat
    this.isFlat = this.labels[1] <= whole - 2;
    this.above = this.isFlat ? FLAT : within(this.labels[1], ABOVE);
    this.wide = Math.min(wide, this.left + this.columns * LARGEST);
    this.high = this.above + Math.max(Math.min(tallest, this.rows * whole), Math.min(120, this.rows * LARGEST));
    this.bound();
  }

  /** Whether there is more to see when it is zoomed. */
  get isLarge() {
    return this.least < LARGEST;
  }

  /** The size at which all of it is seen. */
  get least() {
    return Math.min((this.wide - this.left) / this.columns, (this.high - this.above) / this.rows, LARGEST);
  }

  fit() {
    this.size = this.least;
    [this.first, this.down] = [0, 0];
  }

  zoom(factor, at = [(this.left + this.wide) / 2, (this.above + this.high) / 2]) {
    const [x, y] = at;
    const size = Math.min(Math.max(this.size * factor, this.least), LARGEST);
    // what is under the point stays there
    this.first += (x - this.left) * (1 / this.size - 1 / size);
    this.down += (y - this.above) * (1 / this.size - 1 / size);
    this.size = size;
    this.bound();
  }

  /** By pixels. */
  move(right, down) {
    this.first += right / this.size;
    this.down += down / this.size;
    this.bound();
  }

  /** Move until a cell is seen. */
  show(row, column) {
    const [across, along] = [(this.wide - this.left) / this.size, (this.high - this.above) / this.size];
    this.first = Math.min(Math.max(this.first, column + 1 - across), column);
    this.down = Math.min(Math.max(this.down, row + 1 - along), row);
    this.bound();
  }

  bound() {
    this.size = Math.min(Math.max(this.size, this.least), LARGEST);
    this.first = Math.min(Math.max(this.first, 0), Math.max(this.columns - (this.wide - this.left) / this.size, 0));
    this.down = Math.min(Math.max(this.down, 0), Math.max(this.rows - (this.high - this.above) / this.size, 0));
  }

  /** The level whose cells are a pixel or two. */
  level(top) {
    return Math.min(Math.max(Math.ceil(Math.log2(1 / this.size)), 0), top);
  }

  /** The first and the end of the rows and of the columns that are seen. */
  seen() {
    const rows = [Math.floor(this.down), Math.min(this.down + (this.high - this.above) / this.size, this.rows)];
    return [rows, [Math.floor(this.first), Math.min(this.first + (this.wide - this.left) / this.size, this.columns)]];
  }

  cell(x, y) {
    if (x < this.left || y < this.above) return [-1, -1];
    return [Math.floor(this.down + (y - this.above) / this.size), Math.floor(this.first + (x - this.left) / this.size)];
  }

  /** Where a cell begins: pixels from the left and from above. */
  point(row, column) {
    return [this.left + (column - this.first) * this.size, this.above + (row - this.down) * this.size];
  }
}

/** The first and the last place that a cell of a level stands for. */
export function spans(place, step, count) {
  const first = Math.floor(place / step) * step;
  return [first, Math.min(first + step, count) - 1];
}

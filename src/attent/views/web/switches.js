// The heads of a run that are switched off.

export class Switches {
  /** `change` is called after each change. */
  constructor(change) {
    this.change = change;
    this.off = [];
  }

  find(module, head) {
    return this.off.findIndex((one) => one.module === module && one.head === head);
  }

  has(module, head) {
    return this.find(module, head) >= 0;
  }

  /** That a head is switched off; nothing of one that is on. */
  told(module, head) {
    return this.has(module, head) ? `head ${head} is off` : "";
  }

  toggle(module, head) {
    const place = this.find(module, head);
    if (place < 0) this.off.push({ module, head });
    else this.off.splice(place, 1);
    this.change();
  }

  clear() {
    this.off = [];
    this.change();
  }
}

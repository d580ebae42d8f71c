// Which class has which colour and pattern: a slot, kept for as long as the class is shown, whatever its rank.

/** Which class has which colour. */
export class Slots {
  private readonly slots = new Map<string, number>();

  /** Gives colours to these classes and takes them from all others. */
  assign(names: readonly string[]): void {
    const kept = new Set(names);
    for (const name of this.slots.keys()) {
      if (!kept.has(name)) this.slots.delete(name);
    }
    const taken = new Set(this.slots.values());
    let free = 0;
    for (const name of names) {
      if (this.slots.has(name)) continue;
      while (taken.has(free)) free += 1;
      taken.add(free);
      this.slots.set(name, free);
    }
  }

  slot(name: string): number | null {
    return this.slots.get(name) ?? null;
  }
}

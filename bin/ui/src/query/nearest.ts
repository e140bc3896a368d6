/** Names that are similar to a name. */

/** Maximum size of a name that is compared. */
const NAME_SIZE_MAX = 200;

/** Returns the most similar candidates, at most `max`: those that differ in few characters, or contain the text. */
export function nearest(text: string, candidates: string[], max: number): string[] {
  const wanted = text.toLowerCase().slice(0, NAME_SIZE_MAX);
  const distanceMax = Math.max(2, Math.floor(wanted.length / 3));
  const found: Array<{ name: string; distance: number }> = [];
  for (const name of candidates) {
    const other = name.toLowerCase().slice(0, NAME_SIZE_MAX);
    const contains = wanted.length > 2 && (other.includes(wanted) || (other.length > 2 && wanted.includes(other)));
    const distance = Math.abs(other.length - wanted.length) > distanceMax ? Infinity : distanceOf(wanted, other, distanceMax);
    // One that contains the text is as far away as any that is offered.
    if (distance <= distanceMax || contains) found.push({ name, distance: Math.min(distance, distanceMax) });
  }
  found.sort((a, b) => a.distance - b.distance || a.name.length - b.name.length || (a.name < b.name ? -1 : 1));
  return found.slice(0, max).map(({ name }) => name);
}

/** Returns how many characters must be inserted, removed, replaced or exchanged with their neighbor, or more than `max`. */
export function distanceOf(a: string, b: string, max: number): number {
  let before: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1];
      let cost = Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (last[j - 1] ?? 0) + (isSame ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) cost = Math.min(cost, (before[j - 2] ?? 0) + 1);
      row.push(cost);
    }
    if (Math.min(...row) > max) return max + 1;
    before = last;
    last = row;
  }
  return last[b.length] ?? 0;
}

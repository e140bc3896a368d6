/** Work in slices, so that the page responds meanwhile. */

/** Time of a slice. */
export const SLICE_MS = 25;

/** Waits for the next task of the browser.
 *
 * Does not wait for a frame, because a hidden page has none. Throws if `signal` is aborted by then. */
export async function nextTask(signal?: AbortSignal): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve));
  signal?.throwIfAborted();
}

/** Maps a list as `Array.map` does, the first slice now. Throws if `signal` is aborted between two slices. */
export async function mapInSlices<T, R>(items: T[], map: (item: T) => R, signal?: AbortSignal): Promise<R[]> {
  const results: R[] = [];
  let end = performance.now() + SLICE_MS;
  for (const item of items) {
    results.push(map(item));
    if (performance.now() < end) continue;
    await nextTask(signal);
    end = performance.now() + SLICE_MS;
  }
  return results;
}

/** Parses responses, the large result of a range query in slices. */

import { mapInSlices } from "../parts/task";

/** Characters of a piece, and of the largest response that is parsed at once. */
const PIECE_SIZE = 256 * 1024;
/** What stands between two series. No part of it is in another string: its first quote has no backslash before it, so
 * it begins or ends a string, and no letter follows the end of a string. */
const BOUNDARY = '},{"metric":';

/** Parses JSON as `JSON.parse` does. Throws if `signal` is aborted meanwhile. */
export async function parseJson(text: string, signal?: AbortSignal): Promise<unknown> {
  if (text.length > PIECE_SIZE) {
    const parsed = await parseMatrix(text, signal).catch(() => undefined);
    signal?.throwIfAborted();
    if (parsed !== undefined) return parsed;
  }
  return JSON.parse(text);
}

/** Parses the result of a range query with more than two series. Returns undefined or throws if the text is another. */
async function parseMatrix(text: string, signal?: AbortSignal): Promise<unknown> {
  const [first, last] = [text.indexOf(BOUNDARY), text.lastIndexOf(BOUNDARY)];
  if (first === last) return undefined;
  // The response without all series but the first and the last.
  const envelope = JSON.parse(text.slice(0, first) + text.slice(last));
  const { data } = envelope;
  if (data.resultType !== "matrix" || data.result.length !== 2) return undefined;
  const pieces: string[] = [];
  for (let start = first, end = first; start < last; start = end) {
    end = text.indexOf(BOUNDARY, Math.min(start + PIECE_SIZE, last));
    pieces.push(text.slice(start + 2, end + 1));
  }
  const parsed = await mapInSlices(pieces, (piece) => JSON.parse(`[${piece}]`) as unknown[], signal);
  data.result = [data.result[0], ...parsed.flat(), data.result[1]];
  return envelope;
}

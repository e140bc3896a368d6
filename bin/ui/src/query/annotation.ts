/** Positions of errors, warnings and infos in the text of a query, as the server's messages contain them. */

export interface Annotation {
  level: "error" | "warning" | "info";
  text: string;
  /** Offset in the query, in UTF-16 code units. */
  position?: number;
}

/** Reads a message with its position: `1:5: parse error: …`, or `… (1:5)`. Columns count bytes, as in Prometheus. */
export function annotate(level: Annotation["level"], text: string, query: string): Annotation {
  const place = /(?:^|: )(\d+):(\d+): parse error/.exec(text) ?? /\((\d+):(\d+)\)$/.exec(text);
  if (!place) return { level, text };
  return { level, text, position: offsetAt(query, Number(place[1]), Number(place[2])) };
}

/** Returns the offset of a line and a column, both from 1. Returns undefined if the text has no such line. */
export function offsetAt(text: string, line: number, column: number): number | undefined {
  const lines = text.split("\n");
  const target = lines[line - 1];
  if (target === undefined) return undefined;
  const before = lines.slice(0, line - 1).reduce((sum, skipped) => sum + skipped.length + 1, 0);
  const bytes = new TextEncoder().encode(target).slice(0, Math.max(0, column - 1));
  return before + new TextDecoder().decode(bytes).length;
}

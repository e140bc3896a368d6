/** Senders as `status/senders` lists them, and when one is late. */

export interface Sender {
  address: string;
  user: string;
  userAgent: string;
  path: string;
  firstMs: number;
  lastMs: number;
  requests: number;
  samples: number;
  deduplicated: number;
  samplesPerSecond: number;
  /** Series of the last ten minutes, estimated above 63. */
  series: number;
  failed: number;
  lastError: string;
  lastErrorMs: number;
  newestSampleMs: number | null;
  lagMs: number | null;
  sameSeries: Array<{ sender: string; share: number }>;
}

/** Age of the newest sample of a request above which a sender is marked: it falls behind, or its clock does. */
export const LAG_MS = 300_000;
/** Time of silence after which a sender is marked. Prometheus sends at least once a minute. */
export const SILENT_MS = 120_000;

/** Returns `true` if a sender is silent, or its samples arrive late. */
export function isLate({ lastMs, lagMs }: Sender, nowMs: number): boolean {
  return nowMs - lastMs > SILENT_MS || (lagMs ?? 0) > LAG_MS;
}

/** Returns a readable name of a sender. */
export function nameOf({ user, address, userAgent }: Sender): string {
  return [user, address].filter(Boolean).join(" · ") || userAgent || "unknown";
}

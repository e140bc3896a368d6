/** Type and unit of a metric: from its metadata, or from its name where the sender has sent none. */

import type { Metadata } from "../api/types";

export interface Kind {
  type: string;
  unit: string;
  help: string;
  /** True if the name says the type, because there is no metadata. */
  isTypeFromName: boolean;
  isUnitFromName: boolean;
}

/** Suffixes of the series of a metric family. */
const SUFFIXES = ["_bucket", "_count", "_sum", "_total", "_info", "_created"];
/** What a suffix says about the type, by the naming conventions of Prometheus and OpenMetrics. */
const TYPES: ReadonlyArray<[suffix: string, type: string]> = [
  ["_bucket", "histogram"],
  ["_total", "counter"],
  ["_count", "counter"],
  ["_sum", "counter"],
  ["_info", "info"],
  ["_created", "gauge"],
  ["_timestamp_seconds", "gauge"],
];
const UNITS = (
  "seconds milliseconds microseconds nanoseconds minutes hours days bytes kibibytes mebibytes bits " +
  "celsius kelvin meters volts amperes ohms watts joules hertz grams ratio percent cores"
).split(" ");

/** Returns the metadata of a metric, or of its metric family if it has none. */
export function metadataOf(name: string, all: Record<string, Metadata[]>): Metadata | undefined {
  const own = all[name]?.[0];
  if (own) return own;
  const suffix = SUFFIXES.find((end) => name.endsWith(end));
  return suffix === undefined ? undefined : all[name.slice(0, -suffix.length)]?.[0];
}

/** Returns the type and the unit of a metric. */
export function kindOf(name: string, all: Record<string, Metadata[]>): Kind {
  const { type = "unknown", unit = "", help = "" } = metadataOf(name, all) ?? {};
  const typeOfName = type === "unknown" || type === "" ? TYPES.find(([suffix]) => name.endsWith(suffix))?.[1] : undefined;
  const nameUnit = unit === "" ? unitOf(name) : "";
  return { type: typeOfName ?? (type === "" ? "unknown" : type), unit: unit || nameUnit, help, isTypeFromName: typeOfName !== undefined, isUnitFromName: nameUnit !== "" };
}

/** Returns the unit at the end of a name, or an empty string. A number of observations has none. */
function unitOf(name: string): string {
  if (name.endsWith("_count") || name.endsWith("_info")) return "";
  const suffix = SUFFIXES.find((end) => name.endsWith(end));
  const family = suffix === undefined ? name : name.slice(0, -suffix.length);
  return UNITS.find((unit) => family.endsWith(`_${unit}`)) ?? "";
}

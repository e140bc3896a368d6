/** Requests to the server's HTTP API: Prometheus' envelope, credentials, and waiting while the store is not open. */

import { createStore } from "../parts/store";
import { parseJson } from "./json";

/** A response, with its size and duration. */
export interface Answer<T> {
  data: T;
  warnings: string[];
  infos: string[];
  /** Characters of the body, before compression. */
  size: number;
  /** Time from the request to the last byte. */
  seconds: number;
  /** True if an identical concurrent request computed the response. */
  isShared: boolean;
}

/** A response other than success. `kind` is Prometheus' `errorType`, or `network`. */
export class ApiError extends Error {
  constructor(
    readonly kind: string,
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export type Params = Record<string, string | number | string[] | undefined>;

export interface RequestOptions {
  params?: Params;
  method?: "GET" | "POST" | "DELETE";
  signal?: AbortSignal;
  /** True if the user requested these data. Other requests of the page do not count as a use of a metric. */
  isUse?: boolean;
}

/** The condition that requests wait for: none, credentials, or an open store. */
export type Waiting = "no" | "credentials" | "rejected credentials" | "store";

/** The condition that requests wait for now. The shell shows it and calls [`resume`]. */
export const waiting = createStore<Waiting>("no");

/** True while the server cannot be reached, or a proxy says so. */
export const isUnreachable = createStore(false);
/** Number of reconnects. Each one reloads the data of the page. */
export const reconnects = createStore(0);

/** Ends the time during which the server could not be reached. */
export function endOutage(): void {
  isUnreachable.set(false);
  reconnects.set(reconnects.get() + 1);
}

/** True once the server has said that the credentials are those of a tenant. They see series and rules, nothing else. */
export const isTenant = createStore(false);
/** The reason of a 403 that only users of a tenant get. */
const TENANT_REASON = "shows more than the series of a tenant";

/** Credentials live in memory only: they end with the page. */
let authorization: string | undefined;
let resumed: Array<() => void> = [];

/** Sets credentials: a bearer token, or a user with a password. An empty secret removes them. */
export function setCredentials(user: string, secret: string): void {
  const basic = () => "Basic " + btoa(String.fromCharCode(...new TextEncoder().encode(`${user}:${secret}`)));
  isTenant.set(false);
  authorization = secret === "" ? undefined : user === "" ? `Bearer ${secret}` : basic();
  resume();
}

/** Returns `true` if the page sends credentials. */
export function hasCredentials(): boolean {
  return authorization !== undefined;
}

/** Repeats all requests that wait. */
export function resume(): void {
  const all = resumed;
  resumed = [];
  waiting.set("no");
  for (const repeat of all) repeat();
}

function wait(reason: Waiting, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  waiting.set(reason);
  return new Promise((resolve, reject) => {
    const leave = () => {
      resumed = resumed.filter((repeat) => repeat !== end);
      reject(signal?.reason);
    };
    const end = () => {
      signal?.removeEventListener("abort", leave);
      resolve();
    };
    resumed.push(end);
    signal?.addEventListener("abort", leave, { once: true });
  });
}

/** Requests `api/v1/…` relative to the page and returns the data of its envelope. */
export async function request<T>(path: string, options: RequestOptions = {}): Promise<Answer<T>> {
  const response = await send(`api/v1/${path}`, options);
  const { started, text } = response;
  const answer = { size: text.length, seconds: (performance.now() - started) / 1000 };
  const isShared = response.headers.get("X-Varve-Shared") === "true";
  if (response.status === 204) return { data: [] as T, warnings: [], infos: [], isShared, ...answer };
  const body = await parse(text, response.status, options.signal);
  if (body.status !== "success") {
    throw new ApiError(body.errorType ?? "internal", response.status, body.error ?? `status ${response.status}`);
  }
  return { data: body.data as T, warnings: body.warnings ?? [], infos: body.infos ?? [], isShared, ...answer };
}

interface Envelope {
  status: string;
  data?: unknown;
  errorType?: string;
  error?: string;
  warnings?: string[];
  infos?: string[];
}

async function parse(text: string, status: number, signal?: AbortSignal): Promise<Envelope> {
  try {
    return (await parseJson(text, signal)) as Envelope;
  } catch {
    signal?.throwIfAborted();
    const reason = status < 400 ? "the response is not complete: the server aborted it" : text.trim().slice(0, 500);
    throw new ApiError(status === 403 ? "forbidden" : "internal", status, reason || `status ${status}`);
  }
}

interface Received {
  status: number;
  headers: Headers;
  text: string;
  started: number;
}

async function send(url: string, options: RequestOptions): Promise<Received> {
  for (;;) {
    const started = performance.now();
    const sent = authorization;
    const response = await fetchFromServer(url, options);
    if (response.status === 401) {
      // The user may have entered credentials since the request was sent.
      if (sent !== authorization) continue;
      await wait(authorization === undefined ? "credentials" : "rejected credentials", options.signal);
    } else if (response.status === 503 && response.headers.get("X-Prometheus-Stopping") === "false") {
      await wait("store", options.signal);
    } else if (PROXY_STATUSES.includes(response.status) && !(await isReachable())) {
      throw unreachable(undefined, "a proxy does not reach the server");
    } else {
      const text = await response.text().catch((cause: unknown) => {
        throw unreachable(cause, "the connection broke before the response was complete");
      });
      if (response.status === 403 && text.includes(TENANT_REASON)) isTenant.set(true);
      return { status: response.status, headers: response.headers, text, started };
    }
  }
}

/** Requests a URL relative to the page with the credentials. Does not wait for credentials or an open store. */
export async function fetchFromServer(url: string, options: RequestOptions = {}): Promise<Response> {
  const { params = {}, method = "GET", signal, isUse = false } = options;
  const form = encode(params);
  const hasBody = method === "POST";
  const query = !hasBody && form !== "" ? `?${form}` : "";
  const headers = new Headers();
  // Without this header, a 401 would open a dialog of the browser.
  headers.set("X-Requested-With", "XMLHttpRequest");
  if (authorization !== undefined) headers.set("Authorization", authorization);
  if (!isUse) headers.set("X-Varve-Inspection", "true");
  if (hasBody) headers.set("Content-Type", "application/x-www-form-urlencoded");
  const body = hasBody ? form : null;
  try {
    return await fetch(url + query, { method, headers, body, signal: signal ?? null, cache: "no-store" });
  } catch (cause) {
    throw unreachable(cause, "the server cannot be reached");
  }
}

/**
 * Statuses of a proxy that does not reach the server, which never sends them itself. A proxy also responds with 504 if one
 * request takes too long, so another request tells.
 */
const PROXY_STATUSES = [502, 504];

/** Returns `true` if the server responds, also if it only asks for credentials or replays its log. */
export async function isReachable(): Promise<boolean> {
  try {
    return !PROXY_STATUSES.includes((await fetchFromServer("api/v1/status/walreplay")).status);
  } catch {
    return false;
  }
}

function unreachable(cause: unknown, message: string): unknown {
  if (isAbort(cause)) return cause;
  isUnreachable.set(true);
  return new ApiError("network", 0, message);
}

/** Encodes parameters as a form. Omits undefined and empty values. */
export function encode(params: Params): string {
  const form = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== "") form.append(name, String(one));
    }
  }
  return form.toString();
}

/** Returns `true` if an error only says that the request was canceled. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** Returns the text of any error. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

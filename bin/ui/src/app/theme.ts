/** The theme: light, dark, or the setting of the system. */

import { createSavedStore } from "../parts/store";

export type Theme = "system" | "light" | "dark";
const THEMES: readonly Theme[] = ["system", "light", "dark"];

/** The user's choice. */
export const theme = createSavedStore<Theme>("varve.theme", "system", (value): value is Theme =>
  THEMES.includes(value as Theme),
);

/** Values of design tokens in this theme: reading one computes styles. */
const tokens = new Map<string, string>();

const media = matchMedia("(prefers-color-scheme: dark)");

function apply(): void {
  const choice = theme.get();
  const isDark = choice === "dark" || (choice === "system" && media.matches);
  document.documentElement.dataset["theme"] = isDark ? "dark" : "light";
  tokens.clear();
  dispatchEvent(new Event("varve-theme"));
}

/** Applies the theme now and whenever the choice or the system changes. */
export function startTheme(): void {
  apply();
  theme.subscribe(apply);
  media.addEventListener("change", apply);
}

/** Returns the choice that follows the current one. */
export function nextTheme(): Theme {
  return THEMES[(THEMES.indexOf(theme.get()) + 1) % THEMES.length] ?? "system";
}

/** Returns the value of a design token. */
export function token(name: string): string {
  const value = tokens.get(name) ?? getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  tokens.set(name, value);
  return value;
}

/** Number of colors of series; see style/tokens.css. */
export const SERIES_COLORS = 12;

/** Returns the name of the color of a series. */
export function seriesVariable(index: number): string {
  return `--series-${index % SERIES_COLORS}`;
}

/** Returns the color of a series by its index. */
export function seriesColor(index: number): string {
  return token(seriesVariable(index));
}

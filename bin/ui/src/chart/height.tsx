/** The height of graphs: the user drags the handle below a graph, and the browser remembers it. */

import { useRef } from "preact/hooks";
import { createSavedStore, useStore } from "../parts/store";

const HEIGHT_DEFAULT = 420;
const HEIGHT_MIN = 160;
const HEIGHT_MAX = 1600;
/** Pixels of an arrow key. */
const KEY_STEP = 20;

/** In pixels. */
export const graphHeight = createSavedStore<number>("varve.graph-height", HEIGHT_DEFAULT, (value): value is number => typeof value === "number" && value >= HEIGHT_MIN && value <= HEIGHT_MAX);

/** Sets the height of all graphs, within its bounds. */
function resize(height: number): void {
  graphHeight.set(Math.round(Math.min(HEIGHT_MAX, Math.max(HEIGHT_MIN, height))));
}

export function ResizeHandle() {
  const height = useStore(graphHeight);
  const start = useRef<{ y: number; height: number } | undefined>(undefined);
  const onKeyDown = (event: KeyboardEvent) => {
    const direction = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (direction === 0) return;
    event.preventDefault();
    resize(height + direction * KEY_STEP);
  };
  return (
    <div
      class="resize"
      role="separator"
      aria-label="Height of graphs"
      aria-orientation="horizontal"
      aria-valuemin={HEIGHT_MIN}
      aria-valuemax={HEIGHT_MAX}
      aria-valuenow={height}
      tabIndex={0}
      title="Drag to change the height of graphs; double-click resets it"
      onKeyDown={onKeyDown}
      onDblClick={() => resize(HEIGHT_DEFAULT)}
      onPointerDown={(event) => {
        event.preventDefault();
        event.currentTarget.setPointerCapture(event.pointerId);
        start.current = { y: event.clientY, height };
      }}
      onPointerMove={(event) => start.current && resize(start.current.height + event.clientY - start.current.y)}
      onPointerUp={() => (start.current = undefined)}
      onPointerCancel={() => (start.current = undefined)}
    />
  );
}

/** The editor of a query: a text area until CodeMirror is loaded. */

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { EditorHandle } from "../editor/editor";
import { completionClient } from "./completion";
import { history } from "./history";
import type { Annotation } from "./annotation";

interface Props {
  value: string;
  annotations: Annotation[];
  label: string;
  isFirst: boolean;
  /** True if the editor takes the focus when it appears. */
  isNew?: boolean;
  onChange: (value: string) => void;
  onRun: () => void;
}

export function Editor({ value, annotations, label, isFirst, isNew, onChange, onRun }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const area = useRef<HTMLTextAreaElement>(null);
  const handle = useRef<EditorHandle | undefined>(undefined);
  const latest = useRef({ value, annotations, onChange, onRun });
  latest.current = { value, annotations, onChange, onRun };
  useEffect(() => {
    let isGone = false;
    const mount = async () => {
      const { createEditor } = await import("../editor/editor");
      const textArea = area.current;
      if (isGone || !host.current || !textArea) return;
      const hadFocus = document.activeElement === textArea;
      handle.current = createEditor(host.current, {
        text: latest.current.value,
        label,
        selection: [textArea.selectionStart, textArea.selectionEnd],
        client: completionClient,
        history: () => history.get(),
        onChange: (text) => latest.current.onChange(text),
        onRun: () => latest.current.onRun(),
      });
      handle.current.setAnnotations(latest.current.annotations);
      textArea.hidden = true;
      if (hadFocus) handle.current.focus();
    };
    mount().catch(() => {
      // The text area remains.
    });
    return () => {
      isGone = true;
      handle.current?.destroy();
      handle.current = undefined;
    };
  }, []);
  useEffect(() => {
    if (isNew) area.current?.focus();
  }, []);
  // Before the next key: a later effect would replace newer text with this one, and each would trigger the other.
  useLayoutEffect(() => handle.current?.setText(value), [value]);
  useEffect(() => handle.current?.setAnnotations(annotations), [annotations]);
  useEffect(() => {
    const element = host.current;
    const focus = () => (handle.current ?? area.current)?.focus();
    element?.addEventListener("varve-focus", focus);
    return () => element?.removeEventListener("varve-focus", focus);
  }, []);
  return (
    <div class="editor" ref={host} data-editor={isFirst ? "" : undefined}>
      <textarea
        ref={area}
        aria-label={label}
        rows={Math.min(12, value.split("\n").length)}
        spellcheck={false}
        autocomplete="off"
        placeholder="PromQL, for example sum by (job) (rate(http_requests_total[5m]))"
        value={value}
        onInput={(event) => onChange(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          onRun();
        }}
      />
    </div>
  );
}

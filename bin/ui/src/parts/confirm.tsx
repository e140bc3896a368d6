/** A button that asks before it acts, and shows the error if the action fails. */

import { useRef, useState } from "preact/hooks";
import { ErrorBox } from "./view";

interface Props {
  title: string;
  question: string;
  /** Performs the action. */
  act: () => Promise<unknown>;
  onDone: () => void;
}

export function ConfirmButton({ title, question, act, onDone }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const confirm = async () => {
    setIsBusy(true);
    setError(undefined);
    try {
      await act();
      dialog.current?.close();
      onDone();
    } catch (reason) {
      setError(reason);
    } finally {
      setIsBusy(false);
    }
  };
  const ask = () => {
    setError(undefined);
    dialog.current?.showModal();
  };
  return (
    <>
      <button type="button" onClick={ask}>{title}</button>
      <dialog ref={dialog} aria-label={title} class="confirm">
        <p>{question}</p>
        {error !== undefined && <ErrorBox error={error} />}
        <form method="dialog">
          <button type="submit" class="quiet">Keep as it is</button>
          <button type="button" class="primary" disabled={isBusy} onClick={() => void confirm()}>{title}</button>
        </form>
      </dialog>
    </>
  );
}

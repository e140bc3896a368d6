/** Asks for a token, or for a user with a password. They stay in memory. */

import { useState } from "preact/hooks";
import { setCredentials } from "../api/client";

export function Credentials({ isRejected }: { isRejected: boolean }) {
  const [user, setUser] = useState("");
  const [secret, setSecret] = useState("");
  return (
    <main class="page gate" id="main">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (secret !== "") setCredentials(user, secret);
        }}
      >
        <h1>This server needs credentials</h1>
        <p class="about">The page keeps them in memory only and forgets them when it is closed or loaded again.</p>
        {isRejected && <p class="message error" role="alert">The server rejected these credentials.</p>}
        <label class="field column">
          <span>User, empty for a token</span>
          <input type="text" autocomplete="username" spellcheck={false} value={user} onInput={(event) => setUser(event.currentTarget.value)} />
        </label>
        <label class="field column">
          <span>Token or password</span>
          <input type="password" autocomplete="current-password" autofocus value={secret} onInput={(event) => setSecret(event.currentTarget.value)} />
        </label>
        <button type="submit" class="primary" disabled={secret === ""}>Continue</button>
      </form>
    </main>
  );
}

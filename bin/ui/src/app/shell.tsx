/** The frame of all pages: navigation, notices, credentials, and the progress of the replay. */

import { useEffect, useState } from "preact/hooks";
import { isTenant, waiting } from "../api/client";
import { isUtc } from "../parts/time";
import { useStore } from "../parts/store";
import { Page } from "../parts/view";
import { Credentials } from "./credentials";
import { useHasJobs } from "./has_jobs";
import { Help } from "./help";
import { Notices } from "./notices";
import { PAGES, type PageEntry, pageOf } from "./pages";
import { Replay } from "./replay";
import { Reconnect } from "./reconnect";
import { homeOf, navigate, pageUrl, useAddress } from "./router";
import { nextTheme, theme } from "./theme";

export function Shell() {
  const { page } = useAddress();
  const reason = useStore(waiting);
  const active = pageOf(page);
  const needsCredentials = reason === "credentials" || reason === "rejected credentials";
  useEffect(() => {
    document.title = `${active.title} · Varve`;
  }, [active]);
  const isRestricted = useStore(isTenant);
  useEffect(() => {
    // The overview is about the whole server. Users of a tenant begin with their series.
    if (isRestricted && active.id === "overview") navigate("query", true);
  }, [isRestricted, active]);
  const View = isRestricted && !active.isForTenants ? NotForTenants : active.view;
  return (
    <>
      <a class="skip" href="#main">Skip to content</a>
      <Head />
      {needsCredentials && <Credentials isRejected={reason === "rejected credentials"} />}
      {reason === "store" && <Replay isBlocking />}
      <Reconnect />
      {/* The overview lists the notifications itself. */}
      {!isRestricted && <Notices hasList={active.id !== "overview"} />}
      {/* Requests that wait keep the page mounted, so that it continues where it was. */}
      <div hidden={reason !== "no"}>
        <View key={active.id} />
      </div>
      <Help />
    </>
  );
}

/** Stands in for a page about the whole server. */
function NotForTenants() {
  const { page } = useAddress();
  return (
    <Page title={pageOf(page).title}>
      <p class="empty">This page shows the whole server. Your credentials are those of a tenant, whose users see its series and rules.</p>
    </Page>
  );
}

function Head() {
  const { page } = useAddress();
  const [isOpen, setIsOpen] = useState(false);
  const shownTheme = useStore(theme);
  const utc = useStore(isUtc);
  useEffect(() => setIsOpen(false), [page]);
  const isRestricted = useStore(isTenant);
  const active = pageOf(page).id;
  const hasJobs = useHasJobs();
  const isListed = ({ id, isForTenants, isQuiet }: PageEntry) => (isForTenants || !isRestricted) && (!isQuiet || hasJobs || id === active);
  return (
    <header class="head">
      <a class="brand" data-page href={pageUrl("overview")} aria-label="Varve, overview">
        <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
          <path d="M1 3h14v2H1zM1 6.5h14v1H1zM1 9h14v3H1zM1 13.5h14v.8H1z" fill="currentColor" />
        </svg>
        Varve
      </a>
      <button type="button" class="menu quiet" aria-expanded={isOpen} aria-controls="nav" onClick={() => setIsOpen(!isOpen)}>
        <span>{pageOf(page).title}</span> <span aria-hidden="true">▾</span>
      </button>
      <nav id="nav" aria-label="Pages" class={isOpen ? "open" : ""}>
        {PAGES.filter(isListed).map(({ id, title }) => (
          <a key={id} data-page href={homeOf(id)} aria-current={id === active ? "page" : undefined}>{title}</a>
        ))}
      </nav>
      <div class="head-end">
        <button type="button" class="quiet" title="Time zone of all times on the page" onClick={() => isUtc.set(!utc)}>
          {utc ? "UTC" : "Local time"}
        </button>
        <button type="button" class="quiet" title="Color theme" onClick={() => theme.set(nextTheme())}>
          {shownTheme === "system" ? "Auto" : shownTheme === "dark" ? "Dark" : "Light"}
          <span class="hidden"> theme</span>
        </button>
      </div>
    </header>
  );
}


/** Entry of the page. */

import "./style/tokens.css";
import "./style/base.css";
import "./style/shell.css";
import "./style/table.css";
import "./style/query.css";
import "./style/pages.css";
import "./style/jobs.css";
import "uplot/dist/uPlot.min.css";
import { render } from "preact";
import { loadWhenIdle } from "./app/lazy";
import { followLink, startRouter } from "./app/router";
import { Shell } from "./app/shell";
import { startTheme } from "./app/theme";

startTheme();
startRouter();
addEventListener("click", followLink);
const root = document.getElementById("root");
root?.replaceChildren();
if (root) render(<Shell />, root);
loadWhenIdle();

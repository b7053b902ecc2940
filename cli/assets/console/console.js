"use strict";
// The page of weft console. It shows what /events sends and asks nobody else.

const $ = (id) => document.getElementById(id);
let me = false;
let state = {};
// When the console was last heard (milliseconds since 1970), and why it is not heard now.
let heard = 0;
let silent = "";
// It is heard every ten seconds at least.
const SILENCE = 30000;

// An element with text and children: no HTML is made of what a volume is called.
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  let left = Math.abs(value);
  while (left >= 1024 && unit < UNITS.length - 1) { left /= 1024; unit += 1; }
  const digits = unit === 0 || left >= 100 ? 0 : 1;
  return `${value < 0 ? "-" : ""}${left.toFixed(digits)} ${UNITS[unit]}`;
}
const rate = (value) => (value === null || value === undefined ? "–" : `${bytes(value)}/s`);
const count = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));
function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 1 ? `${(value * 1000).toFixed(0)} µs` : `${value.toFixed(value < 10 ? 2 : 0)} ms`;
}
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "time left unknown";
  if (seconds < 100) return `about ${Math.round(seconds)} s left`;
  if (seconds < 6000) return `about ${Math.round(seconds / 60)} min left`;
  return `about ${Math.round(seconds / 3600)} h left`;
}

// Replaces what is in an element, and keeps the focus of the control with the same id in it.
function fill(id, ...children) {
  const place = $(id);
  const focused = place.contains(document.activeElement) ? document.activeElement.id : "";
  place.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
  if (focused && $(focused)) $(focused).focus();
}

// Sets a text only if it is another one, so that screen readers say it once.
function text(id, value) {
  if ($(id).textContent !== value) $(id).textContent = value;
}

function table(caption, head, rows) {
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", {},
      el("caption", { class: "hidden" }, caption),
      el("thead", {}, el("tr", {}, ...head.map(([name, kind]) => el("th", { scope: "col", class: kind }, name)))),
      el("tbody", {}, ...rows)));
}

function health() {
  const status = state.status || {};
  const time = (milliseconds) => new Date(milliseconds).toLocaleTimeString();
  const unheard = () => ({
    level: "bad", sentence: `Nothing is known of ${status.name || state.volume || "the volume"}${heard ? ` since ${time(heard)}` : ""}: ${silent}.`,
    next: heard ? "What is shown below is as it was then." : "",
  });
  const words = silent ? unheard() : state.words || { level: "warning", sentence: "Nothing is known of the volume yet.", next: "" };
  document.body.className = words.level;
  $("health").className = words.level;
  text("sentence", words.sentence);
  text("next", words.next);
  text("name", status.name || state.volume || "Weft");
  document.title = `${words.level === "good" ? "" : "⚠ "}${status.name || "Weft"}`;
  $("problem").hidden = !state.problem;
  text("problem", state.problem || "");
  const tile = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
  const used = status.total - status.free;
  fill("tiles",
    state.at && (silent || state.known === false) ? tile("as it was at", time(state.at * 1000)) : null,
    status.total ? tile("used", `${bytes(used)} of ${bytes(status.total)}`) : null,
    status.files !== undefined ? tile("files", count(status.files)) : null,
    status.code ? tile("code", status.code) : null,
    status.chunk_sets !== undefined ? tile("chunk sets", count(status.chunk_sets)) : null,
    status.chunk_sets_to_repair ? tile("to repair", `${count(status.chunk_sets_to_repair)}, ${bytes(status.bytes_to_repair)}`) : null,
    state.clients !== null && state.clients !== undefined ? tile("clients", count(state.clients)) : null);
  let space = status.total ? `${(100 * used / status.total).toFixed(1)} % used` : "";
  if (state.growth) {
    space += `, ${state.growth > 0 ? "grows" : "shrinks"} by ${bytes(Math.abs(state.growth))} a day`;
    const days = status.free / state.growth;
    if (days > 0 && days < 3650) space += `: full in ${days < 2 ? `${(days * 24).toFixed(0)} hours` : `${days.toFixed(0)} days`}`;
  }
  text("space", space);
  const now = state.point || {};
  text("rate", `stores move ${rate(now.network)}; programs read ${rate(now.read)}, write ${rate(now.written)}`);
  text("time", `targets ${milliseconds(now.delay)}; read ${milliseconds(now.read_ms)}, write ${milliseconds(now.write_ms)}`);
}

function sets() {
  const survive = (state.status || {}).chunk_sets_by_losses_survived || [];
  const lost = (state.status || {}).chunk_sets_lost || 0;
  const most = Math.max(1, lost, ...survive);
  const bar = (name, value, bad) => {
    const fillIn = el("i", { class: bad ? "bad" : null });
    fillIn.style.width = `${100 * value / most}%`;
    return el("div", { class: "bar" }, el("span", {}, name), el("span", { "aria-hidden": "true" }, value ? fillIn : ""), el("span", {}, count(value)));
  };
  const bars = survive.map((value, losses) => bar(losses === 1 ? "1 more loss" : `${losses} more losses`, value, losses === 0 && survive.length > 1)).reverse();
  fill("sets", ...bars, lost ? bar("lost", lost, true) : null, bars.length ? null : el("p", { class: "quiet" }, "unknown"));
}

function work() {
  const status = state.status || {};
  const lines = (status.repairs || []).map((repair) => el("div", {},
    el("p", {}, `Repair: ${count(repair.chunk_sets_done)} of ${count(repair.chunk_sets)} chunk sets, ${bytes(repair.bytes_done)} of ${bytes(repair.bytes)}, ${rate(repair.bytes_per_second)}, ${duration(repair.seconds_left)}${repair.chunk_sets_failed ? `, ${repair.chunk_sets_failed} FAILED` : ""}`),
    el("progress", { max: Math.max(1, repair.bytes), value: repair.bytes_done, "aria-label": "Repair" })));
  if (!lines.length) lines.push(el("p", { class: "quiet" }, "No repair is going on."));
  const move = status.rebalance;
  if (move) {
    const moving = move.bytes > 0 && move.state !== "idle";
    lines.push(el("p", {}, `Rebalancing: ${move.state}${move.waits ? ` (${move.waits})` : ""}${moving ? `, ${bytes(move.bytes_done)} of ${bytes(move.bytes)}, ${rate(move.bytes_per_second)}, ${duration(move.seconds_left)}` : ""}`));
    if (moving) lines.push(el("progress", { max: move.bytes, value: move.bytes_done, "aria-label": "Rebalancing" }));
    if (me) {
      lines.push(el("p", {},
        el("button", { type: "button", id: "pause", onclick: () => ask("pause", {}, "Pause rebalancing", "Nothing is moved until it is resumed, also after a restart.") }, "Pause"), " ",
        el("button", { type: "button", id: "resume", onclick: () => ask("resume", {}, "Resume rebalancing", "Chunks are moved again.") }, "Resume")));
    }
  }
  fill("work", ...lines);
}

// The five steps: CO is the first three.
function cost() {
  const taken = (state.write_cost || []).filter((step) => step.count);
  if (!taken.length) {
    fill("cost", el("p", { class: "quiet" }, "No write was counted. For a cluster, name the metrics of mounts: weft console --metrics."));
    return;
  }
  const of = (...codes) => taken.filter((step) => codes.includes(step.code)).reduce((sum, step) => sum + step.seconds, 0);
  const steps = [["CO", "client overhead", of("CT", "MT", "DT")], ["MP", "master process", of("MP")], ["PC", "parity calculation", of("PC")],
    ["DD", "data distribution", of("DD")], ["SP", "slave process", of("SP")]];
  const all = steps.reduce((sum, step) => sum + step[2], 0) || 1;
  fill("cost", ...steps.map(([code, name, seconds]) => {
    const fillIn = el("i");
    fillIn.style.width = `${100 * seconds / all}%`;
    return el("div", { class: "bar" }, el("span", {}, `${code} ${name}`), el("span", { "aria-hidden": "true" }, fillIn), el("span", {}, `${(100 * seconds / all).toFixed(1)} %`));
  }), el("p", { class: "quiet" }, `${all.toFixed(2)} s of all writes together`));
}

function servers() {
  const status = state.status || {};
  const rows = (status.servers || []).map((server) => el("tr", {},
    el("td", { class: "path" }, server.name), el("td", {}, server.holder ? "has the volume" : "stands by"),
    el("td", { class: server.up ? "state-up" : "state-bad" }, server.up ? "up" : "silent"),
    el("td", { class: "n" }, server.transactions_behind ? `${count(server.transactions_behind)} behind` : "")));
  const clients = state.clients === null || state.clients === undefined
    ? "The number of clients is in the metrics of the metadata server (weft console --metrics)."
    : `${count(state.clients)} ${state.clients === 1 ? "client has" : "clients have"} a session.`;
  fill("servers", rows.length ? table("Metadata servers", [["server"], [""], ["state"], ["", "n"]], rows) : el("p", { class: "quiet" }, "The volume is open in one process, without servers."),
    status.servers && status.servers.length ? el("p", { class: "quiet" }, clients) : null);
}

function stateOf(target) {
  if (target.role === "removed") return ["removed", "state-mid"];
  if (target.problem) return [target.state && target.state !== "up" ? target.state : "BAD", "state-bad"];
  if (target.role === "draining") return ["draining", "state-mid"];
  if (target.state === "down" || target.state === "out") return [target.state, "state-bad"];
  return [target.state || "up", "state-up"];
}

function row(target) {
  const load = target.load || {};
  const [word, kind] = stateOf(target);
  const used = target.total ? (target.total - target.free) / target.total : null;
  const buttons = [];
  if (me && target.role !== "removed") {
    const draining = target.role === "draining";
    buttons.push(el("button", { type: "button", id: `drain-${target.id}`, "aria-label": `${draining ? "Stop draining" : "Drain"} ${target.path}`,
      onclick: () => ask(draining ? "undrain" : "drain", { target: target.path }, draining ? "Stop draining" : "Drain a target", `${target.path}${draining ? " is used again." : ": everything on it is moved to others, and it is removed."}`) }, draining ? "Undrain" : "Drain"), " ");
    buttons.push(el("button", { type: "button", id: `replace-${target.id}`, "aria-label": `Replace ${target.path}`,
      onclick: () => ask("replace", { target: target.path }, "Replace a target", `Another one takes the place of ${target.path}: an empty directory, or store://HOST:PORT/TARGET.`, true) }, "Replace"));
  }
  const cells = [
    el("th", { scope: "row", class: "path" }, target.path, target.problem ? el("div", { class: "state-bad" }, target.problem) : null),
    el("td", { class: kind }, word),
    el("td", {}, used === null ? "–" : el("meter", { min: 0, max: 1, low: 0.8, high: 0.95, optimum: 0, value: used.toFixed(4), "aria-label": `${(100 * used).toFixed(0)} % used` }), used === null ? "" : `${bytes(target.free)} free`),
    el("td", { class: "n" }, count(target.chunks)),
    el("td", { class: "n" }, load.queue === undefined ? "–" : load.queue.toFixed(2)),
    el("td", { class: "n" }, load.temperature === undefined ? "–" : load.temperature.toFixed(1)),
    el("td", { class: "n" }, load.accesses_per_second === undefined ? "–" : load.accesses_per_second.toFixed(0)),
    el("td", { class: "n" }, load.delay === undefined ? "–" : milliseconds(load.delay * 1000)),
  ];
  if (me) cells.push(el("td", {}, ...buttons));
  return el("tr", {}, ...cells);
}

// The targets in a tree of domains: rack1/host3 is below rack1.
const closed = new Set();
function targets() {
  const all = (state.status || {}).targets || [];
  const root = { below: new Map(), targets: [] };
  for (const target of all) {
    let place = root;
    for (const part of (target.domain || "").split("/").filter(Boolean)) {
      if (!place.below.has(part)) place.below.set(part, { below: new Map(), targets: [] });
      place = place.below.get(part);
    }
    place.targets.push(target);
  }
  const head = [["target"], ["state"], ["space"], ["chunks", "n"], ["queue", "n"], ["temperature", "n"], ["accesses/s", "n"], ["delay", "n"]];
  if (me) head.push(["actions"]);
  const within = (place) => [...place.targets, ...[...place.below.values()].flatMap(within)];
  const draw = (place, path) => {
    const parts = [];
    if (place.targets.length) parts.push(table(`Targets ${path ? `in ${path}` : "of the volume"}`, head, place.targets.map(row)));
    for (const [name, below] of [...place.below].sort((a, b) => a[0].localeCompare(b[0], "en", { numeric: true }))) {
      const whole = path ? `${path}/${name}` : name;
      const inside = within(below);
      const bad = inside.filter((target) => stateOf(target)[1] === "state-bad").length;
      const details = el("details", { open: !closed.has(whole) },
        el("summary", { id: `domain-${whole}` }, `${name}: ${inside.length} ${inside.length === 1 ? "target" : "targets"}${bad ? `, ${bad} away or bad` : ""}`), ...draw(below, whole));
      details.addEventListener("toggle", () => (details.open ? closed.delete(whole) : closed.add(whole)));
      parts.push(details);
    }
    return parts;
  };
  fill("targets", ...draw(root, ""));
  if (!all.length) fill("targets", el("p", { class: "quiet" }, "unknown"));
}

function events() {
  const all = state.events || [];
  fill("events", ...all.map(([when, what]) => {
    const time = new Date(when * 1000);
    return el("li", {}, el("time", { datetime: time.toISOString() }, time.toLocaleString()), what);
  }), all.length ? null : el("li", { class: "quiet" }, "Nothing has happened since the console began."));
}

// Charts: the lines of each, by the names of points.
const CHARTS = [
  ["c-space", bytes, [["used", "used", "--accent"], ["total", "size", "--second"]]],
  ["c-rate", rate, [["network", "stores", "--accent"], ["read", "read", "--good"], ["written", "write", "--second"], ["repair", "repair and rebalancing", "--third"]]],
  ["c-time", milliseconds, [["delay", "targets", "--accent"], ["read_ms", "read", "--good"], ["write_ms", "write", "--second"]]],
];
let points = [];
// What the console itself keeps (history.rs): the last points, and one a minute of the two days before.
const NEAR = 900;
const FAR = 2880;
function thin(all) {
  const far = [];
  for (const point of all.slice(0, -NEAR)) if (!far.length || point.t >= far[far.length - 1].t + 60) far.push(point);
  return [...far.slice(-FAR), ...all.slice(-NEAR)];
}
const charts = new Map();

function data(lines) {
  return [points.map((point) => point.t), ...lines.map(([key]) => points.map((point) => point[key] ?? null))];
}

function draw(again) {
  const style = getComputedStyle(document.documentElement);
  // Charts are drawn in pixels: they grow with the letters of the page.
  const scale = parseFloat(style.fontSize) / 16;
  const colour = (name) => style.getPropertyValue(name).trim();
  for (const [id, show, lines] of CHARTS) {
    const place = $(id);
    const known = charts.get(id);
    if (known && !again) { known.setData(data(lines)); continue; }
    if (known) known.destroy();
    const axis = { font: `${Math.round(12 * scale)}px system-ui, sans-serif`, size: 50 * scale, gap: 5 * scale, space: 60 * scale, stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    charts.set(id, new uPlot({
      width: Math.max(200, place.clientWidth), height: Math.round(200 * scale),
      scales: { x: { range: (_, low, high) => (high - low < 60 ? [high - 60, high] : [low, high]) }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [axis, { ...axis, size: 84 * scale, space: 30 * scale, values: (_, values) => values.map(show) }],
      series: [{}, ...lines.map(([, label, name]) => ({ label, stroke: colour(name), width: 2, spanGaps: true, value: (_, value) => show(value) }))],
    }, data(lines), place));
  }
}

function render() {
  health(); sets(); work(); cost(); servers(); targets(); events();
  $("login").hidden = !state.login || me;
  $("logout").hidden = !me;
  text("version", state.version || "");
}

async function post(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "x-weft": "console" }, body });
  // A login ends after eight hours, and with the console.
  if (answer.status === 403 && path !== "/login") { me = false; render(); }
  return [answer.ok, (await answer.text()).trim()];
}

// Asks whether it is to be done, and has it done.
function ask(what, more, title, words, takes = false) {
  text("h-ask", title);
  text("asktext", words);
  $("askwith").hidden = !takes;
  $("with").value = "";
  const dialog = $("ask");
  dialog.returnValue = "no";
  dialog.onclose = async () => {
    if (dialog.returnValue !== "yes") return;
    const wanted = { do: what, ...more, ...(takes ? { with: $("with").value.trim() } : {}) };
    const [, said] = await post("/act", JSON.stringify(wanted));
    text("said", said);
  };
  dialog.showModal();
}

$("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const file = $("keyfile").files[0];
  const [ok, said] = await post("/login", file ? await file.text() : $("key").value);
  $("key").value = "";
  text("loginsaid", ok ? "" : said);
  me = ok;
  render();
});
$("logout").addEventListener("click", async () => { await post("/logout", ""); me = false; render(); });

// Says that what is shown is old.
function hush(why) {
  if (silent === why) return;
  silent = why;
  text("link", "not live; trying again");
  render();
}
setInterval(() => { if (heard && Date.now() - heard > SILENCE) hush("the console says nothing"); }, 1000);

function listen() {
  const source = new EventSource("/events");
  // It may be another process than before, which knows of no login.
  source.onopen = async () => { me = await (await fetch("/me")).json(); render(); };
  source.onerror = () => {
    hush("there is no connection to the console");
    // It does not try again by itself after an answer such as that too many watch.
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
  };
  source.onmessage = (message) => {
    state = JSON.parse(message.data);
    heard = Date.now();
    silent = "";
    text("link", "live");
    const point = state.point;
    if (point && (!points.length || point.t > points[points.length - 1].t)) points.push(point);
    if (points.length > NEAR + FAR + 100) points = thin(points);
    render();
    draw(false);
  };
}

async function begin() {
  const asked = await Promise.all(["/history", "/me", "/state"].map((path) => fetch(path)));
  [points, me, state] = await Promise.all(asked.map((answer) => answer.json()));
  heard = Date.now();
  render();
  draw(true);
  listen();
}
let resized = 0;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => draw(true), 150); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
function start() {
  begin().catch(() => { hush("the console does not answer"); setTimeout(start, 2000); });
}
start();

// Draws the figures that the page carries as JSON. Colours are roles such as "@blue:0.2"; the theme gives them a value.
"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = read("figures");
  const themes = read("themes");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)");
  const plots = [...document.querySelectorAll(".plot")];
  const chosen = {}; // picker id -> stage

  const rgb = (code) => [1, 3, 5].map((i) => parseInt(code.slice(i, i + 2), 16));
  const colour = (role, theme) => {
    const [name, amount] = role.slice(1).split(":");
    if (name === "lr") {
      const t = Number(amount);
      const [a, b] = (t < 0.5 ? ["low", "middle"] : ["middle", "high"]).map((key) => rgb(theme[key]));
      const share = t < 0.5 ? 2 * t : 2 * t - 1;
      return `rgb(${a.map((part, i) => Math.round(part + (b[i] - part) * share)).join(",")})`;
    }
    return amount === undefined ? theme[name] : `rgba(${rgb(theme[name]).join(",")},${amount})`;
  };
  const resolve = (value, theme) => {
    if (typeof value === "string") return value[0] === "@" ? colour(value, theme) : value;
    if (Array.isArray(value)) return typeof value[0] === "number" ? value.slice() : value.map((item) => resolve(item, theme));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolve(item, theme)]));
  };

  const draw = (plot) => {
    const found = figures[plot.dataset.figure];
    const spec = found.stages ? found.stages[chosen[plot.dataset.picker]] : found;
    plot.hidden = !spec;
    if (!spec) return Promise.resolve();
    const { data, layout } = resolve(spec, themes[dark.matches ? "dark" : "light"]);
    if (plot.clientWidth < 560) {
      layout.font.size = 11;
      layout.legend.font.size = 10;
      layout.margin = { ...layout.margin, l: 40, r: 14 };
      if (layout.height > 300) layout.height += 60;
    }
    if (coarse.matches) layout.dragmode = false; // a finger scrolls the page
    const config = { responsive: true, displayModeBar: coarse.matches ? false : "hover", displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"] };
    return Plotly.react(plot, data, layout, config);
  };
  const inSight = (plot) => plot.getBoundingClientRect().top < innerHeight && plot.getBoundingClientRect().bottom > 0;
  const drawAll = async () => {
    const mark = (value) => { document.documentElement.dataset.drawn = value; };
    const first = plots.filter(inSight);
    for (const plot of first) await draw(plot);
    mark("seen"); // what is on the screen is there; the rest follows while the page already answers
    for (const plot of plots.filter((other) => !first.includes(other))) {
      await new Promise((next) => setTimeout(next));
      await draw(plot);
    }
    mark("all");
  };

  const remember = (key, value) => { try { sessionStorage.setItem(key, value); } catch { /* a page without storage */ } };
  const recall = (key) => { try { return sessionStorage.getItem(key); } catch { return null; } };

  for (const picker of document.querySelectorAll(".picker")) {
    const select = picker.querySelector("select");
    const [back, forth] = picker.querySelectorAll("button");
    const show = (redraw) => {
      chosen[picker.id] = select.value;
      back.disabled = select.selectedIndex === 0;
      forth.disabled = select.selectedIndex === select.options.length - 1;
      for (const part of document.querySelectorAll(`[data-of="${picker.id}"]`)) part.hidden = part.dataset.stage !== select.value;
      remember(picker.id, select.value);
      if (redraw) plots.filter((plot) => plot.dataset.picker === picker.id).forEach(draw);
    };
    const before = recall(picker.id);
    if (before !== null && [...select.options].some((option) => option.value === before)) select.value = before;
    select.addEventListener("change", () => show(true));
    back.addEventListener("click", () => { select.selectedIndex -= 1; show(true); });
    forth.addEventListener("click", () => { select.selectedIndex += 1; show(true); });
    show(false);
  }

  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.addEventListener("click", async () => {
      const code = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected: press Ctrl+C";
      }
    });
  }

  dark.addEventListener("change", drawAll);
  drawAll();

  // A served page asks now and then whether the run has moved on, and loads itself again when it has.
  const { live, stamp } = document.body.dataset;
  if (live) {
    setInterval(async () => {
      try {
        const answer = await fetch(live, { cache: "no-store" });
        if (answer.ok && (await answer.text()) !== stamp && !document.hidden) location.reload();
      } catch { /* the server is gone; the page stays as it is */ }
    }, 3000);
  }
})();

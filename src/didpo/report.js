"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const minus = (text) => text.replace("-", "\u2212");
  const signed = (v) => minus((v >= 0 ? "+" : "") + v.toFixed(Math.abs(v) < 0.01 && v !== 0 ? 4 : 2));

  // All text goes in through textContent: recorded text never becomes markup.
  const make = (tag, className, text) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const row = (label, value) => {
    const node = make("div", "row");
    node.append(make("span", "", label), make("b", "", value));
    return node;
  };

  const show = (content, x, y) => {
    tip.replaceChildren(...content);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth ? Math.max(6, x - box.width - 12) : x + 16;
    const top = y + 18 + box.height > innerHeight ? Math.max(6, y - box.height - 12) : y + 18;
    tip.style.left = left + "px";
    tip.style.top = top + "px";
  };
  const hide = () => { tip.hidden = true; };

  // ---- heat-maps
  const place = (piece) => [+piece.closest(".rollout").dataset.t, +piece.closest(".step").dataset.s];

  const about = (piece) => {
    const block = data.heat[piece.closest(".heat").id];
    const [t, s] = place(piece);
    const values = piece.dataset.v.split(" ").map(Number);
    const content = [row("advantage of these tokens", signed(values[0]))];
    block.parts.forEach((name, i) => content.push(row("  " + name + " part", signed(values[i + 1]))));
    content.push(row("return to go of this turn", signed(+piece.closest(".step").dataset.r)));
    for (const k of (piece.dataset.a || "").split(" ").filter(Boolean).map(Number)) {
      const anchor = block.anchors[k];
      const own = anchor.members.find((m) => m[0] === t && m[1] === s);
      content.push(make("div", "sep"), make("b", "", "#" + anchor.id + " " + anchor.kind + (anchor.label ? " " + anchor.label : "")));
      content.push(row("rows \u00b7 lines \u00b7 GS", anchor.rows + " \u00b7 " + anchor.length + " \u00b7 " + anchor.gs));
      if (own) content.push(row("signal here", minus(String(own[2]))));
      content.push(row("baseline: mean of the anchor", minus(String(anchor.mean))));
      if (anchor.contrast !== null) content.push(row("anchor against the others", signed(anchor.contrast)));
      if (own) content.push(row("local credit here", signed(own[3])));
      const members = anchor.members.slice(0, 8).map((m) => "R" + m[0] + "." + (m[1] + 1) + " " + signed(m[3]));
      const rest = anchor.members.length - members.length;
      content.push(make("div", "dim", "members: " + members.join(", ") + (rest > 0 ? " and " + rest + " more" : "")));
    }
    return content;
  };

  const pick = (heat, k) => {
    const already = heat.dataset.picked === String(k);
    heat.dataset.picked = already ? "" : k;
    for (const rollout of heat.querySelectorAll(".rollout")) {
      const steps = new Set();
      for (const piece of rollout.querySelectorAll(".p[data-a]")) {
        const member = !already && piece.dataset.a.split(" ").includes(String(k));
        piece.classList.toggle("hl", member);
        if (member) steps.add(piece.closest(".step").dataset.s);
      }
      rollout.querySelector(".hits").textContent =
        steps.size ? "\u25c6 anchor #" + data.heat[heat.id].anchors[k].id + " in " + steps.size + (steps.size > 1 ? " turns" : " turn") : "";
    }
    for (const button of heat.querySelectorAll("[data-pick]"))
      button.setAttribute("aria-pressed", String(!already && button.dataset.pick === String(k)));
  };

  const next = (piece) => {  // a click walks through the anchors that cover the piece, then none
    const heat = piece.closest(".heat");
    const anchors = piece.dataset.a.split(" ");
    const at = anchors.indexOf(heat.dataset.picked || "");
    if (at === anchors.length - 1) pick(heat, anchors[at]);
    else pick(heat, anchors[at + 1]);
  };

  document.addEventListener("pointerover", (event) => {
    const piece = event.target.closest(".p[data-v], [data-tip]");
    if (!piece) { if (!event.target.closest("svg[id]")) hide(); return; }
    show(piece.dataset.tip ? [make("div", "", piece.dataset.tip)] : about(piece), event.clientX, event.clientY);
  });
  document.addEventListener("focusin", (event) => {
    const piece = event.target.closest(".p[data-v], [data-tip]");
    if (!piece || !piece.matches(":focus-visible")) return;
    const box = piece.getBoundingClientRect();
    show(piece.dataset.tip ? [make("div", "", piece.dataset.tip)] : about(piece), box.left, box.bottom - 12);
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, true);
  document.addEventListener("click", (event) => {
    const piece = event.target.closest(".p[data-a]");
    if (piece) return next(piece);
    const button = event.target.closest("[data-pick]");
    if (button) return pick(button.closest(".heat"), button.dataset.pick);
    const kind = event.target.closest("[data-show]");
    if (!kind) return;
    const heat = document.getElementById(kind.parentNode.dataset.for);
    heat.classList.remove("by1", "by2", "by3", "by4");
    if (kind.dataset.show !== "0") heat.classList.add("by" + kind.dataset.show);
    for (const other of kind.parentNode.children) other.setAttribute("aria-pressed", String(other === kind));
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    if (event.key !== "Enter" && event.key !== " ") return;
    const piece = event.target.closest(".p[data-a]");
    if (piece) { event.preventDefault(); next(piece); }
  });

  // ---- charts: the values at the nearest x
  const nearest = (chart, x) => {
    let best = null;
    for (const series of chart.series)
      for (const [px] of series.points)
        if (best === null || Math.abs(px - x) < Math.abs(best - x)) best = px;
    return best;
  };
  const point = (svg, chart, x, clientX, clientY) => {
    const [left, right, , , width] = chart.area;
    const cross = svg.querySelector(".cross");
    const at = left + (x - chart.x[0]) / (chart.x[1] - chart.x[0]) * (right - left);
    cross.setAttribute("x1", at);
    cross.setAttribute("x2", at);
    cross.removeAttribute("hidden");
    const content = [make("b", "", chart.xName + " " + x)];
    for (const series of chart.series) {
      const hit = series.points.find((p) => p[0] === x);
      if (!hit) continue;
      const line = row("", chart.share ? (100 * hit[1]).toFixed(1) + " %" : minus(String(+hit[1].toPrecision(4))));
      line.firstChild.append(make("i", "c" + series.color), series.name);
      content.push(line);
    }
    const box = svg.getBoundingClientRect();
    show(content, clientX ?? box.left + at / width * box.width, clientY ?? box.top + 20);
  };
  for (const [id, chart] of Object.entries(data.charts)) {
    const svg = document.getElementById(id);
    let current = null;
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const [left, right, , , width] = chart.area;
      const across = ((event.clientX - box.left) / box.width * width - left) / (right - left);
      current = nearest(chart, chart.x[0] + across * (chart.x[1] - chart.x[0]));
      point(svg, chart, current, event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", () => { svg.querySelector(".cross").setAttribute("hidden", ""); hide(); });
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const xs = [...new Set(chart.series.flatMap((s) => s.points.map((p) => p[0])))].sort((a, b) => a - b);
      const from = current === null ? (step > 0 ? -1 : xs.length) : xs.indexOf(current);
      current = xs[Math.min(xs.length - 1, Math.max(0, from + step))];
      point(svg, chart, current);
    });
  }

  // ---- printing shows everything
  addEventListener("beforeprint", () => {
    for (const node of document.querySelectorAll("details.rollout:not([open]), .step:not([open])")) { node.open = true; node.dataset.folded = "1"; }
  });
  addEventListener("afterprint", () => {
    for (const node of document.querySelectorAll("details[data-folded]")) { node.open = false; delete node.dataset.folded; }
  });
  document.documentElement.dataset.ready = "yes";
})();

"use strict";
const make = (tag, options = {}, parent = null) => {
  const element = Object.assign(document.createElement(tag), options);
  if (parent) parent.append(element);
  return element;
};
const number = (text) => {
  const value = Number.parseFloat(text.replace(/,/g, ""));
  return Number.isNaN(value) ? null : value;
};

// Tables: a click on a heading sorts, a field above long ones filters.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], lines = [...body.rows];
  const sort = (heading) => {
    const ascending = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const text = (line) => line.cells[heading.cellIndex].textContent;
    const compare = (one, two) => {
      const [a, b] = [number(text(one)), number(text(two))];
      return a !== null && b !== null ? a - b : text(one).localeCompare(text(two));
    };
    body.append(...[...body.rows].sort((one, two) => (ascending ? 1 : -1) * compare(one, two)));
  };
  if (lines.length > 1) {
    for (const heading of table.tHead.rows[0].cells) {
      if (!heading.textContent) continue;
      heading.tabIndex = 0;
      heading.title = "sort by " + heading.textContent;
      heading.onclick = () => sort(heading);
      heading.onkeydown = (event) => { if (event.key === "Enter") sort(heading); };
    }
  }
  if (lines.length > 8) {
    const field = make("input", { type: "search", placeholder: "filter lines" });
    field.setAttribute("aria-label", "filter the lines of this table");
    field.oninput = () => {
      const sought = field.value.toLowerCase();
      for (const line of lines) line.hidden = !line.textContent.toLowerCase().includes(sought);
    };
    table.parentElement.before(field);
  }
}

// What is wider than its frame says so.
for (const frame of document.querySelectorAll(".scroll")) {
  const hint = make("p", { className: "hint", textContent: "Wider than the screen: move it sideways." });
  const look = () => { hint.hidden = frame.scrollWidth <= frame.clientWidth + 1; };
  frame.before(hint);
  addEventListener("resize", look);
  addEventListener("load", look);
  look();
}

// The map of topics (LDAvis: Sievert & Shirley 2014). A topic that is clicked, or under the
// pointer, has its words listed by relevance, lambda log p(w|t) + (1 - lambda) log(p(w|t) / p(w));
// a word under the pointer gives the circles the areas of its topics.
const SVG = "http://www.w3.org/2000/svg";
const draw = (tag, attributes, parent) => {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return parent.appendChild(element);
};
const topicMap = (frame) => {
  const data = JSON.parse(frame.querySelector("script").textContent);
  const map = frame.querySelector(".map"), numTopics = data.shares.length;
  const svg = draw("svg", { viewBox: "0 0 440 400", role: "group" }, map);
  svg.setAttribute("aria-label", "map of topics; choose one for its words");
  draw("line", { class: "axis", x1: 0, x2: 440, y1: 200, y2: 200 }, svg);
  draw("line", { class: "axis", x1: 220, x2: 220, y1: 0, y2: 400 }, svg);
  const spread = Math.max(...data.positions.flat().map(Math.abs), 1e-9);
  const at = ([x, y]) => [220 + (160 * x) / spread, 200 - (150 * y) / spread];
  const largest = Math.max(...data.shares, 1e-12);
  const radius = (share) => Math.max(4, 36 * Math.sqrt(Math.max(share, 0) / largest));
  const panel = make("div", {}, map);
  const heading = make("b", {}, panel);
  const label = make("label", {}, panel);
  const shown = make("span", {}, label);
  const slider = make("input", { type: "range", min: 0, max: 1, step: 0.05 }, label);
  slider.value = data.relevance;
  const list = make("ul", { className: "bars" }, panel);
  make("p", { textContent: "Bars: tokens in the data, and of these expected in the topic." }, panel);
  let chosen = 0;
  const groups = data.shares.map((share, topic) => {
    const [x, y] = at(data.positions[topic]);
    const group = draw("g", { tabindex: 0, role: "button" }, svg);
    const percent = (100 * share).toFixed(1) + " % of tokens";
    group.setAttribute("aria-label", `topic ${topic}, ${percent}`);
    draw("circle", { cx: x, cy: y, r: radius(share) }, group);
    draw("text", { x, y: y + 4 }, group).textContent = topic;
    draw("title", {}, group).textContent = `topic ${topic}, ${percent}: ${data.labels[topic]}`;
    group.onclick = group.onfocus = () => { chosen = topic; show(topic); };
    group.onmouseenter = () => show(topic);
    group.onmouseleave = () => show(chosen);
    return group;
  });
  const resize = (areas) => groups.forEach((group, topic) =>
    group.firstChild.setAttribute("r", areas ? 36 * Math.sqrt(areas[topic]) : radius(data.shares[topic])));
  const parts = (word) => {
    const counts = Array(numTopics).fill(0);
    for (const [topic, phi] of data.words[word].topics) counts[topic] = phi * data.shares[topic];
    const total = counts.reduce((sum, count) => sum + count, 0) || 1;
    return counts.map((count) => count / total);
  };
  const show = (topic) => {
    const lambda = Number(slider.value);
    shown.textContent = `relevance, λ = ${lambda.toFixed(2)}: 1 most probable, 0 most particular`;
    heading.textContent =
      `Topic ${topic}, ${(100 * data.shares[topic]).toFixed(1)} % of tokens`;
    groups.forEach((group, index) => group.classList.toggle("chosen", index === topic));
    const ranked = [];
    data.words.forEach(({ count, topics }, word) => {
      const entry = topics.find(([index]) => index === topic);
      if (!entry) return;
      const score = Math.log(entry[1]) - (1 - lambda) * Math.log(count / data.numTokens);
      ranked.push({ word, count, score, inside: entry[1] * data.shares[topic] * data.numTokens });
    });
    ranked.sort((one, two) => two.score - one.score).splice(data.numWords);
    const most = Math.max(...ranked.map(({ count, inside }) => Math.max(count, inside)), 1e-9);
    list.replaceChildren(...ranked.map(({ word, count, inside }) => {
      const line = make("li", {
        title: `${data.words[word].word}: ${count} in the data, ${inside.toFixed(1)} in the topic`,
      });
      make("span", { textContent: data.words[word].word }, line);
      const bar = make("span", { className: "bar" }, make("span", {}, line));
      bar.style.cssText = `display: block; width: ${(100 * count) / most}%`;
      make("i", {}, bar).style.width = `${Math.min(100, (100 * inside) / Math.max(count, 1e-9))}%`;
      line.onmouseenter = () => resize(parts(word));
      line.onmouseleave = () => resize(null);
      return line;
    }));
  };
  slider.oninput = () => show(chosen);
  frame.classList.add("scripted");
  show(0);
};
document.querySelectorAll(".topics-frame").forEach(topicMap);

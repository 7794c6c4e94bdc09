// Run inside a page: what somebody with weak sight, a keyboard or a reader of screens would miss. Empty lists: nothing.
() => {
  const ink = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const colour = (text) => {
    if (!known.has(text)) known.set(text, painted(text));
    return known.get(text);
  };
  const painted = (text) => {
    ink.canvas.width = ink.canvas.height = 1;
    ink.clearRect(0, 0, 1, 1);
    ink.fillStyle = text;
    ink.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = ink.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const behind = (one) => {
    const layers = [];
    for (let each = one; each; each = each.parentElement) {
      const found = colour(getComputedStyle(each).backgroundColor);
      if (found[3] > 0) layers.push(found);
      if (found[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const shown = (one) => {
    const box = one.getBoundingClientRect();
    return box.width > 0 && box.height > 0 && box.right > 0 && getComputedStyle(one).visibility === "visible";
  };
  const named = (one) =>
    (one.getAttribute("aria-label") || one.textContent || one.getAttribute("title") || one.labels?.[0]?.textContent || "").trim();
  const told = (one) => one.outerHTML.slice(0, 120);

  const contrast = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const one = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !shown(one) || one.closest("svg, script, option, .hidden")) continue;
    const style = getComputedStyle(one);
    const below = behind(one);
    const text = over(colour(style.color), below);
    const [a, b] = [light(text.slice(0, 3)), light(below.slice(0, 3))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) contrast.push(`${ratio.toFixed(2)}: ${walk.currentNode.data.trim().slice(0, 40)}`);
  }
  for (const one of document.querySelectorAll("svg text")) {
    const below = behind(one.closest("svg"));
    const [a, b] = [light(colour(getComputedStyle(one).fill).slice(0, 3)), light(below.slice(0, 3))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) contrast.push(`chart: ${one.textContent}`);
  }
  const levels = [...document.querySelectorAll("h1, h2, h3")].filter(shown).map((one) => Number(one.tagName[1]));
  return {
    contrast: [...new Set(contrast)],
    unlabelled: [...document.querySelectorAll("input:not([type=hidden]), select, textarea")]
      .filter((one) => !one.labels?.length && !one.getAttribute("aria-label")).map(told),
    nameless: [...document.querySelectorAll("a, button, summary, iframe")].filter((one) => !named(one)).map(told),
    pictures: [...document.querySelectorAll("img:not([alt]), svg:not([aria-hidden]):not([aria-label])")].map(told),
    headings: levels.filter((one) => one === 1).length === 1 && levels.every((one, i) => i === 0 || one <= levels[i - 1] + 1)
      ? [] : [levels.join(" ")],
    landmarks: document.querySelectorAll("main").length === 1 && document.documentElement.lang ? [] : ["one main, one lang"],
    twice: [...document.querySelectorAll("[id]")].map((one) => one.id).filter((id, i, all) => all.indexOf(id) !== i),
    wide: document.documentElement.scrollWidth > document.documentElement.clientWidth
      ? [`${document.documentElement.scrollWidth} of ${document.documentElement.clientWidth}`] : [],
    cut: [...document.querySelectorAll(".table")].filter((one) => one.scrollWidth > one.clientWidth + 1).map(told),
    small: [...document.querySelectorAll("button, summary.button, .nav a")].filter((one) => shown(one) && one.getBoundingClientRect().height < 24 && !one.matches(".link-button")).map(told),
  };
}

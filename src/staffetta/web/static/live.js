// Small comforts; every page can be read and used without them.
// Live figures: the page that is open is fetched again, and the parts that changed are put in place.
"use strict";
(() => {
  const every = Number(document.body.dataset.live || 0);
  const light = document.getElementById("live");
  let waiting = 0;

  const say = (words, state) => {
    if (!light) return;
    light.hidden = false;
    light.dataset.state = state;
    const text = light.querySelector("span");
    if (text.textContent !== words) text.textContent = words;
  };

  const busy = (part) =>
    part.contains(document.activeElement) && document.activeElement !== document.body
      ? !document.activeElement.matches("a, summary")
      : !document.getSelection().isCollapsed && part.contains(document.getSelection().anchorNode);

  const put = (fresh) => {
    for (const part of document.querySelectorAll("[data-part]")) {
      const other = fresh.getElementById(part.id);
      if (!other || busy(part) || part.querySelector("details[open]")) continue;
      if (part.innerHTML === other.innerHTML) continue;
      const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      part.replaceChildren(...other.cloneNode(true).childNodes);
      if (focused) part.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
    }
    if (fresh.title) document.title = fresh.title;
  };

  const look = async () => {
    waiting = 0;
    if (!document.hidden) {
      try {
        const answer = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "manual" });
        if (answer.type === "opaqueredirect") return location.reload();
        if (!answer.ok) throw new Error(String(answer.status));
        put(new DOMParser().parseFromString(await answer.text(), "text/html"));
        say("Live", "on");
      } catch {
        say("No answer; trying again", "off");
      }
    }
    waiting = setTimeout(look, every);
  };

  if (every) {
    say("Live", "on");
    waiting = setTimeout(look, every);
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && waiting) {
        clearTimeout(waiting);
        look();
      }
    });
  }

  // One tick for all rows of a table.
  for (const all of document.querySelectorAll("[data-all]")) {
    const boxes = [...document.querySelectorAll(`input[name="${all.dataset.all}"]`)];
    const count = document.getElementById(all.dataset.count);
    const show = () => {
      const ticked = boxes.filter((box) => box.checked).length;
      all.checked = ticked > 0 && ticked === boxes.length;
      all.indeterminate = ticked > 0 && ticked < boxes.length;
      if (count) count.textContent = ticked ? `${ticked} selected` : "None selected";
    };
    all.closest("[hidden]")?.removeAttribute("hidden");
    all.addEventListener("change", () => { for (const box of boxes) box.checked = all.checked; show(); });
    for (const box of boxes) box.addEventListener("change", show);
    show();
  }

  // `/` goes to the search, as everywhere.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input:not([type=checkbox]), select, textarea")) return;
    const search = document.querySelector("input[type=search]");
    if (search) { event.preventDefault(); search.focus(); search.select(); }
  });
})();

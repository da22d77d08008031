"use strict";
// What every page has, whatever it draws: the tip beside the pointer, and light or dark.
//
//   shell.showTip(x, y, title, lines)   lines of [mark, name, value]; text only, no markup
//   shell.hideTip()
//   "recoloured"                        an event of <html>: colours of the style sheet changed
window.shell = (() => {
  const root = document.documentElement;
  const tip = document.getElementById("tip");
  const hideTip = () => { tip.hidden = true; };
  /** Shows lines of [mark, name, value] under a title, beside the pointer. */
  const showTip = (x, y, title, lines) => {
    const head = document.createElement("b");
    head.textContent = title;
    const rows = lines.map(([mark, name, value]) => {
      const row = document.createElement("div");
      const [left, right] = [document.createElement("span"), document.createElement("span")];
      left.textContent = name;
      right.textContent = value;
      if (mark) row.append(mark);
      row.append(left, right);
      return row;
    });
    tip.replaceChildren(head, ...rows);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth - 8 ? x - 16 - box.width : x + 16;
    const top = Math.min(Math.max(8, y - box.height / 2), innerHeight - box.height - 8);
    tip.style.transform = `translate(${Math.max(8, left)}px, ${top}px)`;
  };
  addEventListener("scroll", hideTip, { passive: true });
  addEventListener("mouseout", (event) => { if (!event.relatedTarget) hideTip(); });

  const THEMES = ["auto", "light", "dark"];
  const button = document.getElementById("theme");
  const recoloured = () => root.dispatchEvent(new Event("recoloured"));
  /** The store may be refused to a page from a file; then the choice lasts as long as the page. */
  const remembered = (value) => {
    try {
      if (value === undefined) return localStorage.getItem("forerun-theme");
      localStorage.setItem("forerun-theme", value);
    } catch { /* As above. */ }
    return null;
  };
  const wear = (theme) => {
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    recoloured();
  };
  const first = remembered();
  if (THEMES.includes(first)) wear(first);
  button.hidden = false;
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "auto") + 1) % THEMES.length];
    remembered(next);
    wear(next);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recoloured);
  return { showTip, hideTip };
})();

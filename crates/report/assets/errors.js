"use strict";
// First of all scripts: counts what goes wrong in the others, where a test can read it.
document.documentElement.dataset.errors = "0";
{
  const note = (what) => {
    const root = document.documentElement;
    root.dataset.errors = String(Number(root.dataset.errors) + 1);
    root.dataset.error = String(what);
  };
  window.onerror = (message, _file, line) => note(`${message} (line ${line})`);
  window.addEventListener("unhandledrejection", (event) => note(event.reason));
  document.addEventListener("securitypolicyviolation", (event) => note(`policy: ${event.violatedDirective}`));
}

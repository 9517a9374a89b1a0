// Comfort only: every page works without it.
(() => {
  "use strict";

  // A page that nobody looks at, or in which somebody types or reads on, is left as it is.
  document.addEventListener("htmx:beforeRequest", (event) => {
    const part = event.detail.elt;
    const isPoll = part.matches && part.matches("[hx-trigger^='every']");
    if (!isPoll) return;
    const isBusy = part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
    if (document.hidden || isBusy || part.querySelector("details[open]")) event.preventDefault();
  });

  // Moments are written in UTC; what they are here is told on hovering.
  const tellLocal = (root) => {
    for (const time of root.querySelectorAll("time[datetime]:not([title])")) {
      const at = new Date(time.dateTime);
      if (!Number.isNaN(at.getTime())) time.title = `${at.toLocaleString()} here`;
    }
  };
  tellLocal(document);
  document.addEventListener("htmx:afterSettle", (event) => tellLocal(event.detail.elt.parentNode || document));

  // `/` goes to the search.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea")) return;
    const search = document.querySelector("[data-search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  });
})();

// Runs before the first paint, so that a page that was set to one theme never flashes the other.
(() => {
  try {
    const theme = JSON.parse(localStorage.getItem("orderbook.theme"));
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Without storage the system's scheme counts.
  }
})();

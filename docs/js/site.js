// Long lines of code are scrolled by keyboard too, and each block's buttons have a name.
addEventListener("load", () => {
  for (const code of document.querySelectorAll("pre > code")) code.tabIndex = 0;
  document.querySelectorAll(".md-code__nav").forEach((nav, number) => {
    nav.setAttribute("aria-label", `Code ${number + 1}`);
  });
});

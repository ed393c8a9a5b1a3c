/* Edits of the memory in the running game: the list of them, and what was done to the quantity that colours stand for. */

/** The edits of what colours stand for, as elements. */
function editsOf(colourBy) {
  const number = colourBy.match(/^track\.(\d+)$/)?.[1];
  const own = Array.from(document.querySelectorAll("#edits article")).filter(({ dataset }) => dataset.tracks.split(" ").includes(number));
  return own.length ? [element("p", { class: "note" }, "Edited in play:"), ...own.map((edit) => edit.cloneNode(true))] : [];
}

/** Buttons of an edit colour the points by what it edits, and play its films. */
function listenToEdits(state) {
  document.addEventListener("click", ({ target }) => {
    const { colour, film, dose } = target.dataset;
    if (film) showFilm(film, state.data.tables.films[film], dose);
    if (colour) state.colour(colour);
  });
}

function showEdit(edit) {
  edit.closest("details").open = true;
  edit.scrollIntoView({ block: "nearest" });
}

/** The page of an intervention at a dose, over this one; it may run its own scripts, and reach nothing of this page. */
function showFilm(name, page, dose) {
  const frame = element("iframe", { title: `Twins of ${name}`, sandbox: "allow-scripts", name: `dose ${dose}`, srcdoc: page });
  const closed = new AbortController();
  const dialog = element("dialog", { class: "film", onclose: () => { closed.abort(); dialog.remove(); } },
    element("div", { class: "row" }, element("h2", {}, name), element("button", { type: "button", onclick: () => dialog.close() }, "Close")), frame);
  // A key that is pressed in the frame is not heard here, so the page in it says so.
  window.addEventListener("message", ({ source, data }) => { if (source === frame.contentWindow && data === "Escape") dialog.close(); }, { signal: closed.signal });
  document.body.append(dialog);
  dialog.showModal();
}
